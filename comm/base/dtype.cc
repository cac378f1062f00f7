#include "comm/base/dtype.h"

#include <array>
#include <utility>

namespace kolo {
namespace {

constexpr std::array<std::pair<std::string_view, DType>, 32> kDTypeNames = {{
    {"float32", DType::kFloat32},
    {"f32", DType::kFloat32},
    {"fp32", DType::kFloat32},
    {"float64", DType::kFloat64},
    {"f64", DType::kFloat64},
    {"fp64", DType::kFloat64},
    {"float16", DType::kFloat16},
    {"f16", DType::kFloat16},
    {"fp16", DType::kFloat16},
    {"bfloat16", DType::kBFloat16},
    {"bf16", DType::kBFloat16},
    {"int32", DType::kInt32},
    {"i32", DType::kInt32},
    {"int64", DType::kInt64},
    {"i64", DType::kInt64},
    {"uint8", DType::kUInt8},
    {"u8", DType::kUInt8},
    {"float", DType::kFloat32},
    {"double", DType::kFloat64},
    {"half", DType::kFloat16},
    {"byte", DType::kUInt8},
    {"int8", DType::kInt8},
    {"i8", DType::kInt8},
    {"bool", DType::kBool},
    {"complex64", DType::kComplex64},
    {"c64", DType::kComplex64},
    {"complex128", DType::kComplex128},
    {"c128", DType::kComplex128},
    {"float8_e4m3", DType::kFloat8E4M3},
    {"f8e4m3", DType::kFloat8E4M3},
    {"float8_e5m2", DType::kFloat8E5M2},
    {"f8e5m2", DType::kFloat8E5M2},
}};

constexpr std::array<std::pair<std::string_view, ReduceOp>, 13> kReduceOpNames = {{
    {"sum", ReduceOp::kSum},
    {"min", ReduceOp::kMin},
    {"max", ReduceOp::kMax},
    {"prod", ReduceOp::kProd},
    {"average", ReduceOp::kAverage},
    {"avg", ReduceOp::kAverage},
    {"bit_and", ReduceOp::kBitAnd},
    {"band", ReduceOp::kBitAnd},
    {"bit_or", ReduceOp::kBitOr},
    {"bor", ReduceOp::kBitOr},
    {"bit_xor", ReduceOp::kBitXor},
    {"bxor", ReduceOp::kBitXor},
    {"premul_sum", ReduceOp::kPremulSum},
}};

// A value is printed with the first of its names.
template <typename Value, std::size_t kSize>
std::string_view first_name(const std::array<std::pair<std::string_view, Value>, kSize>& names,
                            Value value) {
  for (const auto& [name, candidate] : names) {
    if (candidate == value) return name;
  }
  return "unknown";
}

template <typename Value, std::size_t kSize>
std::optional<Value> find_value(const std::array<std::pair<std::string_view, Value>, kSize>& names,
                                std::string_view text) {
  for (const auto& [name, value] : names) {
    if (name == text) return value;
  }
  return std::nullopt;
}

}  // namespace

std::string_view to_string(DType dtype) { return first_name(kDTypeNames, dtype); }
std::string_view to_string(ReduceOp op) { return first_name(kReduceOpNames, op); }
std::optional<DType> parse_dtype(std::string_view text) { return find_value(kDTypeNames, text); }
std::optional<ReduceOp> parse_reduce_op(std::string_view text) {
  return find_value(kReduceOpNames, text);
}

}  // namespace kolo
