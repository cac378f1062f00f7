#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/device/bounce_buffer.h"
#include "comm/device/stream.h"
#include "comm/schedule/bucket_layout.h"
#include "comm/schedule/codec.h"
#include "comm/schedule/packer.h"

namespace kolo {

/// The resources for all runs of a bucket, fixed for its life. All fields except `name`, packers
/// and stores are equal on all ranks.
struct Binding {
  std::string name = {};  ///< For errors and traces.
  BucketId bucket = 0;
  std::uint64_t first_iteration = 0;  ///< Higher than all iterations of earlier buckets with this
                                      ///< number.
  std::uint32_t first_flag = 0;       ///< The schedule's flags are first_flag .. + flag_count - 1.
  /// The largest earlier value of these flags: iteration n raises them to flag_base + n + 1.
  std::uint64_t flag_base = 0;
  /// Start of the bucket, and of the first turn of its staging memory, in every rank's arena. It
  /// needs as many bytes as `arena_needs` returns.
  std::size_t arena_offset = 0;
  std::size_t staging_offset = 0;
  double scale = 1.0;  ///< Applied by the steps that complete a result.
  /// The packer scales contributions, so reductions must not read tensors directly. For host
  /// buckets out of place, whose contributions may nevertheless lie in the results' memory.
  bool packs_contributions = false;
  // For host buckets; may differ by rank:
  Stores unpack_stores = Stores::kCached;  ///< For writing results to tensors.
  Stores sum_stores = Stores::kCached;     ///< For writing sums to tensors.
  Stores exposure_stores =
      Stores::kCached;               ///< For writing contributions to slots (see ExposedBuffer).
  bool exposes_small_pages = false;  ///< Private memory is exposed whatever its page
                                     ///< size.
  /// For host buckets not in place. Device buckets of kUser use it only to locate pieces: the
  /// elements that a step names are contiguous in a tensor.
  std::shared_ptr<Packer> packer = {};
  std::shared_ptr<Codec> codec = {};  ///< For host buckets with codec steps.
  /// For host buckets with tensors in device memory: the packer finds them here. An iteration runs
  /// once the bounce buffer is full, and ends when it is drained.
  std::shared_ptr<BounceBuffer> bounce_buffer = {};
  std::shared_ptr<StreamPacker> stream_packer = {};  ///< For staged device buckets.
  /// For device buckets: events recorded before each iteration; no work of the iteration starts
  /// before them. Null entries need no wait.
  std::vector<const Event*> inputs = {};
};

}  // namespace kolo
