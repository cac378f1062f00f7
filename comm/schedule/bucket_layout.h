#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/base/buffer_view.h"
#include "comm/base/reduction.h"

namespace kolo {

using BucketId = std::uint32_t;
/// Largest number of buckets in a job; groups have lower limits. A message tag has enough bits for
/// the buckets of the job and of its groups.
inline constexpr BucketId kMaxBuckets = BucketId{1} << 12;

/// A contiguous run of bucket elements.
struct Extent {
  std::size_t offset = 0;
  std::size_t count = 0;

  std::size_t end() const { return offset + count; }
  friend bool operator==(const Extent&, const Extent&) = default;
};

/// Where a bucket's contributions and results are stored.
enum class Placement : std::uint8_t {
  kInPlace,  ///< The tensors are in the bucket itself, so nothing is packed.
  kStaged,   ///< The tensors are outside the bucket: packed before, unpacked after.
  kUser,  ///< As kStaged, but the tensors have the bucket's dtype. Reductions, and native steps of
          ///< a device bucket, may read and write the tensors directly.
};

/// The properties of a bucket that determine its schedules; equal on all ranks.
/// Units: `count` is elements of `dtype` and includes alignment gaps between tensors.
struct BucketLayout {
  std::size_t count = 0;
  DType dtype = DType::kFloat32;  ///< The dtype in the bucket and in messages.
  ReduceOp op = ReduceOp::kSum;
  Placement placement = Placement::kInPlace;
  MemoryKind memory = MemoryKind::kHost;  ///< Either kHost or kDevice.
  /// Contributions are in separate tensors, which are only read. Allowed for host buckets not in
  /// place and for device buckets of kUser.
  bool out_of_place = false;
  /// Contributions are in the memory of the results, at other offsets of the bucket, so steps read
  /// all contributions before they write results. Allowed for device buckets that are
  /// `out_of_place`; a host bucket copies its contributions first instead.
  bool replaces_inputs = false;
  /// A hint for algorithms: the tensors of all ranks are in the ranks' arenas, where peers of the
  /// node can access them. In a later iteration the tensors may be outside the arenas.
  bool in_arenas = false;

  std::size_t bytes() const { return count * size_of(dtype); }
  bool is_on_device() const { return memory == MemoryKind::kDevice; }
  /// Whether partial sums in the bucket's dtype are rounded.
  bool rounds() const { return is_16bit_float(dtype) && !picks_one(op); }
  /// Whether the caller's tensors are in memory of `kind` and steps may use them directly.
  bool is_in_tensors(MemoryKind kind) const {
    return placement == Placement::kUser && memory == kind;
  }
};

/// Alignment in bytes. Tensors in a bucket, and the parts that ranks own, start at multiples of it
/// where possible, so that two ranks never write the same cache line.
inline constexpr std::size_t kWireAlignment = 64;

}  // namespace kolo
