#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kolo {

/// Element types of tensors and of the wire.
enum class DType : std::uint8_t { kFloat32, kFloat64, kFloat16, kBFloat16, kInt32, kInt64, kUInt8 };

/// How contributions are combined. `kAverage` is the sum scaled by 1 / group size.
enum class ReduceOp : std::uint8_t { kSum, kMin, kMax, kProd, kAverage };

/// Every element type, for loops.
inline constexpr DType kAllDTypes[] = {DType::kFloat32,  DType::kFloat64, DType::kFloat16,
                                       DType::kBFloat16, DType::kInt32,   DType::kInt64,
                                       DType::kUInt8};
/// Every operation, for loops.
inline constexpr ReduceOp kAllReduceOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax,
                                             ReduceOp::kProd, ReduceOp::kAverage};

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kUInt8:
      return 1;
  }
  return 0;
}

/// True for float16 and bfloat16.
constexpr bool is_16bit_float(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

/// True for all floating-point types.
constexpr bool is_float(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || is_16bit_float(dtype);
}

/// "float32", "bfloat16", ...
std::string_view to_string(DType dtype);
/// "sum", "average", ...
std::string_view to_string(ReduceOp op);

/// The inverse of `to_string`, which also takes the short forms f32, fp16, bf16, i64, u8, ...;
/// empty for any other text.
std::optional<DType> parse_dtype(std::string_view text);
/// The inverse of `to_string`; empty for any other text.
std::optional<ReduceOp> parse_reduce_op(std::string_view text);

}  // namespace kolo
