#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/base/check.h"
#include "comm/base/reduction.h"
#include "comm/base/span.h"
#include "comm/device/stream.h"
#include "comm/kernels/reduce_kernels.h"
#include "comm/kernels/value_codes.h"

namespace kolo {

/// A piece of one tensor and its offset in a bucket. One thread block copies one piece at a time.
/// Plain data, because the device reads it.
struct CopyChunk {
  void* tensor = nullptr;    ///< First element of the piece. Null means a gap, packed as zeros.
  std::uint64_t offset = 0;  ///< Offset of that element in the bucket, in elements.
  std::uint64_t count = 0;   ///< Number of elements.
};

/// Size limit of a piece, in bytes of the wider of its two dtypes.
inline constexpr std::size_t kCopyChunkBytes = std::size_t{32} << 10;

/// Direction of a batched copy.
enum class CopyDirection : std::uint8_t {
  kPack,    ///< From tensors to the bucket.
  kUnpack,  ///< From the bucket to tensors.
};

/// The arguments of one launch that copies many pieces between tensors and a bucket.
struct BatchedCopy {
  CopyDirection direction = CopyDirection::kPack;
  /// The pieces, in memory that the device can read (kDevice or kPinned). Must stay unchanged until
  /// the launch is complete.
  Span<const CopyChunk> chunks = {};
  void* bucket = nullptr;  ///< Element 0 of the bucket, in device memory.
  DType tensor_dtype = DType::kFloat32;
  DType bucket_dtype = DType::kFloat32;
  double scale = 1.0;  ///< Factor, in float32 (in double for float64 and integers).
  /// A flag in device memory. The launch sets it to 1 if any written value is infinite or NaN, and
  /// otherwise leaves it unchanged. If null, values are not checked.
  std::uint32_t* non_finite = nullptr;
};

/// One tensor of error feedback, and the number of its sums to select.
///
/// Shape:   device memory: indices and values are [k], k <= count < 2^31; the others are [count]
///          float32 and aligned to 16 bytes, except the gradient and, if k is 0, the sums.
/// After:   next_velocity[i] = momentum * velocity[i] + scale * gradient[i], if there is a
/// velocity;
///          sums[i] is the residual plus that, or else plus scale * gradient[i]. `indices` ascend;
///          values[j] is the sum at indices[j]. Every operation is rounded once.
/// Order:   exact, by magnitude; of equal magnitudes the lower index is selected, and NaN first. So
///          the result is unique, and equal to that of error feedback in host memory.
struct TopK {
  const float* residual = nullptr;
  const float* gradient = nullptr;
  float* sums = nullptr;  ///< May be `gradient`; otherwise overlaps nothing.
  float scale = 1.0f;
  const float* velocity = nullptr;  ///< Null: no momentum.
  float* next_velocity = nullptr;
  float momentum = 0.0f;
  std::size_t count = 0;
  std::size_t k = 0;
  std::uint32_t* indices = nullptr;
  float* values = nullptr;
  /// A flag in device memory, set to 1 if any sum is infinite or NaN; may be null.
  std::uint32_t* non_finite = nullptr;
};

/// A block of a tensor's values to encode. Plain data, because the device reads it.
struct CodedBlock {
  std::uint64_t first = 0;    ///< Index of its first value in the tensor.
  std::uint64_t count = 0;    ///< Number of values.
  std::uint64_t element = 0;  ///< Determines its `codes::Dither`.
  std::uint64_t offset = 0;   ///< Of its codes, in bytes.
};

/// The values of a tensor to encode with a few bits each.
///
/// Shape:   device memory, but `blocks` [block_count] may be kPinned; they stay unchanged until the
///          launch is complete.
/// After:   `out` has codes (comm/kernels/value_codes.h), and what they mean is subtracted from the
///          values. If `*non_finite` is not 0, nothing has changed.
struct Quantisation {
  codes::Kind kind = codes::Kind::kInt8;
  float threshold = 0.0f;
  std::uint64_t seed = 0;  ///< See `codes::Dither`.
  float* values = nullptr;
  std::uint8_t* out = nullptr;
  const CodedBlock* blocks = nullptr;
  std::size_t block_count = 0;
  const std::uint32_t* non_finite = nullptr;
};

/// The kernels of a device. Each call enqueues work on a stream of this device and returns.
///
/// Bits:    equal those of the CPU functions in comm/kernels/reduce_kernels.h.
/// Threads: those of Stream.
class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;

  /// Copies, casts and scales pieces between tensors and a bucket. Pieces must not overlap.
  virtual void copy_batched(Stream& stream, const BatchedCopy& copy) = 0;

  /// Computes target[i] = round(scale * (sources[0][i] op sources[1][i] op ...)) in device memory.
  /// `target` may be one of the sources, of which there are at most kMostReduceSources.
  virtual void reduce(Stream& stream, DType dtype, ReduceOp op, void* target,
                      std::span<const void* const> sources, std::size_t count, double scale) = 0;

  // The two functions below take device memory only. Positions, ends and indices must stay
  // unchanged until the launch is complete.

  /// Sums groups of rows as `kolo::sum_rows` does; see comm/kernels/reduce_kernels.h.
  virtual void sum_rows(Stream& stream, const RowGroups& groups, const void* rows,
                        std::size_t width, DType dtype, double scale, void* sums) = 0;

  /// Copies row i of `rows` to row `indices[i]` of `table`, for all i, and sets the other rows of
  /// `table` to zero. `table` has `height` rows; indices must be distinct.
  virtual void spread_rows(Stream& stream, std::span<const std::int64_t> indices, const void* rows,
                           std::size_t row_bytes, void* table, std::size_t height) = 0;

  // The functions below are for error feedback and take device memory only.

  /// See TopK. The workspace has `top_k_workspace_bytes` bytes (kernels/top_k.h) of any content,
  /// and is aligned to 16 bytes; nothing else uses it until the work is complete. Not needed if k
  /// is 0.
  virtual void top_k(Stream& stream, const TopK& task, std::span<std::byte> workspace) = 0;

  /// residual[indices[j]] -= values[j] and, unless it is null, velocity[indices[j]] = 0. Indices
  /// are distinct.
  virtual void subtract_pairs(Stream& stream, std::span<const std::int64_t> indices,
                              const float* values, float* residual, float* velocity) = 0;

  /// See Quantisation.
  virtual void quantise(Stream& stream, const Quantisation& task) = 0;

  /// Sets `*non_finite` to 1 if a number is infinite or NaN; otherwise leaves it unchanged.
  virtual void find_non_finite(Stream& stream, DType dtype, const void* data, std::size_t count,
                               std::uint32_t* non_finite) = 0;
};

/// Largest number of sources of one `DeviceKernels::reduce`.
inline constexpr std::size_t kMostReduceSources = 64;

/// Checks the arguments of `DeviceKernels::reduce`, for all implementations. Errors: UsageError.
inline void check_reduce(std::size_t source_count) {
  check(source_count > 0 && source_count <= kMostReduceSources,
        "a reduction on a device needs at least one source and at most 64");
}

}  // namespace kolo
