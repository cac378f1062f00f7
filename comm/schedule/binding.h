#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/device/pinned_mirror.h"
#include "comm/device/stream.h"
#include "comm/schedule/bucket_layout.h"
#include "comm/schedule/codec.h"
#include "comm/schedule/packer.h"

namespace kolo {

/// The places of a bucket's runs, fixed for its life. All but `name`, packers and stores are
/// equal on all ranks.
struct Binding {
  std::string name = {};  ///< For errors and traces.
  BucketId bucket = 0;
  std::uint64_t first_iteration = 0;  ///< Above those of the buckets that had this number before.
  std::uint32_t first_flag = 0;       ///< The schedule's flags are first_flag .. + flag_count - 1.
  /// The largest value of these flags before: iteration n raises them to flag_base + n + 1.
  std::uint64_t flag_base = 0;
  /// Where the bucket, and the first turn of its staging memory, begin in every rank's arena: as
  /// many bytes as `arena_needs` says.
  std::size_t arena_offset = 0;
  std::size_t staging_offset = 0;
  double scale = 1.0;  ///< Applied by the steps that finish.
  /// The packer scales contributions, so that reductions must not read tensors themselves. For host
  /// buckets out of place, whose contributions may all the same be where results go.
  bool packs_contributions = false;
  // For host buckets; may differ by rank:
  Stores unpack_stores = Stores::kCached;  ///< Of results, to tensors.
  Stores sum_stores = Stores::kCached;     ///< Of sums, to tensors.
  Stores lend_stores = Stores::kCached;    ///< Of contributions, to slots (see Loan).
  bool lends_small_pages = false;          ///< Private memory is lent and offered in any pages.
  /// For host buckets not in place, and device buckets of kUser, which only ask where pieces are:
  /// those that a step names lie side by side.
  std::shared_ptr<Packer> packer = {};
  std::shared_ptr<Codec> codec = {};  ///< For host buckets with codec steps.
  /// Host buckets whose tensors are in device memory: where the packer finds them. An iteration
  /// runs once the mirror is full, and ends when it is drained.
  std::shared_ptr<PinnedMirror> mirror = {};
  std::shared_ptr<StreamPacker> stream_packer = {};  ///< For staged device buckets.
  /// Device buckets: recorded before each iteration, nothing of which starts before them. Null
  /// where there is nothing to wait for.
  std::vector<const Event*> inputs = {};
};

}  // namespace kolo
