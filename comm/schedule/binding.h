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

/// The resources that all runs of a bucket use; they stay the same while the bucket exists. All
/// fields except `name`, packers and stores are equal on all ranks.
struct Binding {
  std::string name = {};  ///< The bucket's name in errors and traces.
  BucketId bucket = 0;
  /// Number of the bucket's first iteration. It is higher than the iteration numbers of all earlier
  /// buckets with the same id.
  std::uint64_t first_iteration = 0;
  /// The schedule uses the flags first_flag .. first_flag + flag_count - 1.
  std::uint32_t first_flag = 0;
  /// The largest earlier value of these flags. Iteration n raises them to flag_base + n + 1.
  std::uint64_t flag_base = 0;
  /// Offsets in bytes from the start of every rank's arena: of the bucket, and of the first copy of
  /// its staging memory (see Schedule::staging_turns). `arena_needs` returns the sizes.
  std::size_t arena_offset = 0;
  std::size_t staging_offset = 0;
  double scale = 1.0;  ///< The factor by which steps with `Step::finishes` multiply.
  /// The packer scales contributions, so reductions read packed copies instead of the tensors. Only
  /// host buckets out of place set this; contributions and results may be in the same memory.
  bool packs_contributions = false;
  // These fields concern host buckets and may differ by rank.
  Stores unpack_stores = Stores::kCached;    ///< How results are written to tensors.
  Stores sum_stores = Stores::kCached;       ///< How sums are written to tensors.
  Stores exposure_stores = Stores::kCached;  ///< How contributions are written to slots.
  bool exposes_small_pages = false;          ///< Peers may access private memory in small pages.
  /// Set for host buckets not in place. Device buckets of kUser use it only to find addresses: each
  /// range that a step names is contiguous in one tensor.
  std::shared_ptr<Packer> packer = {};
  std::shared_ptr<Codec> codec = {};  ///< Set for buckets with codec steps.
  /// Set for host buckets with tensors in device memory: the packer reads and writes the bounce
  /// buffer instead of the tensors. Steps start once the bounce buffer is full, and the iteration
  /// ends when it is drained.
  std::shared_ptr<BounceBuffer> bounce_buffer = {};
  std::shared_ptr<StreamPacker> stream_packer = {};  ///< Set for staged device buckets.
  /// Set for device buckets. The caller records these events before each iteration, and the
  /// iteration's work on the device waits for them. A null entry causes no wait.
  std::vector<const Event*> inputs = {};
};

}  // namespace kolo
