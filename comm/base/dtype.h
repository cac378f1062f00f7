#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kolo {

/// Element types of tensors and of the wire.
enum class DType : std::uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kInt32,
  kInt64,
  kUInt8,
  kInt8,
  kBool,        ///< A byte of value 0 or 1.
  kComplex64,   ///< Real and imaginary part, both float32.
  kComplex128,  ///< Real and imaginary part, both float64.
  kFloat8E4M3,  ///< A byte that is only moved.
  kFloat8E5M2,  ///< A byte that is only moved.
};

/// How contributions are combined. `takes` in reduction.h says which dtypes each takes.
enum class ReduceOp : std::uint8_t {
  kSum,
  kMin,
  kMax,
  kProd,
  kAverage,  ///< The sum divided by the size of the group.
  kBitAnd,
  kBitOr,
  kBitXor,
  kPremulSum,  ///< The sum of contributions, each times a number of its rank.
};

/// Every element type, for loops.
inline constexpr DType kAllDTypes[] = {
    DType::kFloat32,    DType::kFloat64,    DType::kFloat16,   DType::kBFloat16, DType::kInt32,
    DType::kInt64,      DType::kUInt8,      DType::kInt8,      DType::kBool,     DType::kComplex64,
    DType::kComplex128, DType::kFloat8E4M3, DType::kFloat8E5M2};
/// The numbers with which kernels compute: those of gradients. Other elements are carried by them;
/// see carrier.h.
inline constexpr DType kNumberDTypes[] = {DType::kFloat32,  DType::kFloat64, DType::kFloat16,
                                          DType::kBFloat16, DType::kInt32,   DType::kInt64,
                                          DType::kUInt8,    DType::kInt8};
/// Every operation, for loops.
inline constexpr ReduceOp kAllReduceOps[] = {
    ReduceOp::kSum,    ReduceOp::kMin,   ReduceOp::kMax,    ReduceOp::kProd,     ReduceOp::kAverage,
    ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor, ReduceOp::kPremulSum};
/// The operations on numbers: those of gradients, and on devices.
inline constexpr ReduceOp kNumberOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax,
                                          ReduceOp::kProd, ReduceOp::kAverage};

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kComplex128:
      return 16;
    case DType::kFloat64:
    case DType::kInt64:
    case DType::kComplex64:
      return 8;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kBool:
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2:
      return 1;
  }
  return 0;
}

/// True for float16 and bfloat16.
constexpr bool is_16bit_float(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

/// True for the floating-point types with which kernels compute.
constexpr bool is_float(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || is_16bit_float(dtype);
}

/// True for pairs of real and imaginary part.
constexpr bool is_complex(DType dtype) {
  return dtype == DType::kComplex64 || dtype == DType::kComplex128;
}

/// True for the types of `kNumberDTypes`.
constexpr bool is_number(DType dtype) {
  for (const DType each : kNumberDTypes) {
    if (each == dtype) return true;
  }
  return false;
}
/// True for the operations of `kNumberOps`.
constexpr bool is_number_op(ReduceOp op) {
  for (const ReduceOp each : kNumberOps) {
    if (each == op) return true;
  }
  return false;
}

/// True for operations whose result is one of the contributions, which rounds nothing.
constexpr bool picks_one(ReduceOp op) { return op == ReduceOp::kMin || op == ReduceOp::kMax; }

/// "float32", "bfloat16", ...
std::string_view to_string(DType dtype);
/// "sum", "average", ...
std::string_view to_string(ReduceOp op);

/// The inverse of `to_string`, which also takes the short forms f32, fp16, bf16, i64, u8, ...;
/// empty for any other text.
std::optional<DType> parse_dtype(std::string_view text);
/// The inverse of `to_string`, which also takes "avg", "band", "bor" and "bxor"; empty for any
/// other text.
std::optional<ReduceOp> parse_reduce_op(std::string_view text);

}  // namespace kolo
