#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/base/check.h"
#include "comm/base/reduction.h"
#include "comm/device/stream.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo {

/// A piece of one tensor and its place in a bucket: the work of one thread block. A large tensor
/// gets many blocks; small tensors share none. Plain data that the device reads.
struct CopyChunk {
  void* tensor = nullptr;    ///< First element of the piece; null on pack writes zeros (a gap).
  std::uint64_t offset = 0;  ///< Place of that element in the bucket, in elements.
  std::uint64_t count = 0;   ///< Number of elements.
};

/// Size of the largest piece, in bytes of the wider dtype.
inline constexpr std::size_t kCopyChunkBytes = std::size_t{32} << 10;

/// Direction of a batched copy.
enum class CopyDirection : std::uint8_t {
  kPack,    ///< From tensors to the bucket.
  kUnpack,  ///< From the bucket to tensors.
};

/// One launch over many pieces of tensors.
struct BatchedCopy {
  CopyDirection direction = CopyDirection::kPack;
  /// Memory that the device can read (kDevice or kPinned); unchanged until the launch is complete.
  std::span<const CopyChunk> chunks = {};
  void* bucket = nullptr;  ///< Device memory of the bucket, element 0.
  DType tensor_dtype = DType::kFloat32;
  DType bucket_dtype = DType::kFloat32;
  double scale = 1.0;  ///< Factor, applied in float32 (float64, integers: double) before rounding.
  /// If not null, device memory that is set to 1 if any value written is infinite or NaN, and is
  /// otherwise left unchanged.
  std::uint32_t* non_finite = nullptr;
};

/// Kernels of the data plane. Each call enqueues work on a stream of its device and returns.
///
/// Bits:    equal to the CPU reference (`reduce`, `convert` in comm/kernels/reduce_kernels.h) in
///          every run.
/// Threads: as for Stream.
class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;

  /// Casts and scales between tensors and a bucket. Chunks of one launch do not overlap.
  virtual void copy_batched(Stream& stream, const BatchedCopy& copy) = 0;

  /// target[i] = round(scale * (sources[0][i] op sources[1][i] op ...)) as `reduce` does, in device
  /// memory. `target` may be one of the sources. At most kMostReduceSources sources.
  virtual void reduce(Stream& stream, DType dtype, ReduceOp op, void* target,
                      std::span<const void* const> sources, std::size_t count, double scale) = 0;

  // The two functions below take device memory only. Positions, ends and indices stay unchanged
  // until the launch is complete; many threads read each of them.

  /// As `sum_rows` in comm/kernels/reduce_kernels.h.
  virtual void sum_rows(Stream& stream, const RowGroups& groups, const void* rows,
                        std::size_t width, DType dtype, double scale, void* sums) = 0;

  /// Copies row i of `rows` to row `indices[i]` of `table`, for all i, and clears the other rows of
  /// its `height`. Indices are distinct.
  virtual void spread_rows(Stream& stream, std::span<const std::int64_t> indices, const void* rows,
                           std::size_t row_bytes, void* table, std::size_t height) = 0;
};

/// Most sources of one `DeviceKernels::reduce`; for more, the caller launches it several times.
inline constexpr std::size_t kMostReduceSources = 64;

/// Argument checks shared by all implementations of `DeviceKernels::reduce`. Errors: UsageError.
inline void check_reduce(std::size_t source_count) {
  check(source_count > 0 && source_count <= kMostReduceSources,
        "a reduction on a device needs at least one source and at most 64");
}

}  // namespace kolo
