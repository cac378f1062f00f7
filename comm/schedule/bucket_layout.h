#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/base/buffer_view.h"
#include "comm/base/reduction.h"

namespace kolo {

using BucketId = std::uint32_t;
/// Bucket limit of the job; groups have lower limits. Message tags have room for both.
inline constexpr BucketId kMaxBuckets = BucketId{1} << 12;

/// A contiguous run of bucket elements.
struct Extent {
  std::size_t offset = 0;
  std::size_t count = 0;

  std::size_t end() const { return offset + count; }
  friend bool operator==(const Extent&, const Extent&) = default;
};

/// Where the elements of a bucket come from and go to.
enum class Placement : std::uint8_t {
  kInPlace,  ///< In the bucket itself, where the tensors live: nothing is packed.
  kStaged,   ///< In tensors elsewhere: packed before, unpacked after.
  kUser,  ///< As kStaged, but the tensors have the bucket's dtype, so that reductions, and native
          ///< steps of a device bucket, may read and write them where they are.
};

/// The properties of a bucket that decide its schedules; equal on all ranks.
/// Units: `count` is elements of `dtype`, alignment gaps between tensors included.
struct BucketLayout {
  std::size_t count = 0;
  DType dtype = DType::kFloat32;  ///< Dtype of the elements in the bucket and on the wire.
  ReduceOp op = ReduceOp::kSum;
  Placement placement = Placement::kInPlace;
  MemoryKind memory = MemoryKind::kHost;  ///< kHost or kDevice.
  /// Contributions lie in separate tensors, which are only read. For host buckets not in place, and
  /// device buckets of kUser.
  bool out_of_place = false;
  /// Contributions lie in the memory of results, in other places of the bucket, so steps read what
  /// they send before they write. For device buckets that are `out_of_place`; host buckets get
  /// copies.
  bool replaces_inputs = false;
  /// A hint for algorithms: the tensors of all ranks are in their arenas, where peers of the node
  /// can access them. They may be elsewhere in another iteration.
  bool in_arenas = false;

  std::size_t bytes() const { return count * size_of(dtype); }
  bool is_on_device() const { return memory == MemoryKind::kDevice; }
  /// Whether partial sums in its dtype would be rounded.
  bool rounds() const { return is_16bit_float(dtype) && !picks_one(op); }
  /// Whether steps may work directly in the caller's tensors, which are in memory of this kind.
  bool is_in_tensors(MemoryKind kind) const {
    return placement == Placement::kUser && memory == kind;
  }
};

/// Tensors in a bucket, and the parts that ranks own, start at multiples of this many bytes where
/// possible, so that two ranks never write the same cache line.
inline constexpr std::size_t kWireAlignment = 64;

}  // namespace kolo
