#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "comm/base/value_table.h"

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
  kBool,        ///< One byte with value 0 or 1.
  kComplex64,   ///< Real and imaginary part, both float32.
  kComplex128,  ///< Real and imaginary part, both float64.
  kFloat8E4M3,
  kFloat8E5M2,
};

/// Properties of a dtype.
struct DTypeTraits {
  DType value;
  /// 'f': floating-point, 'i': integer, 'b': Boolean, 'c': complex, 'v': only moved, never reduced.
  /// Kernels compute only with 'f' and 'i'. Other kinds are mapped to these; see storage_type.h.
  char kind;
  std::size_t bytes;          ///< Size of one element.
  std::string_view names[4];  ///< Names that `parse_dtype` accepts; the first is printed.
};

/// One row per dtype, in the order of the enumeration.
inline constexpr DTypeTraits kDTypes[] = {
    {DType::kFloat32, 'f', 4, {"float32", "f32", "fp32", "float"}},
    {DType::kFloat64, 'f', 8, {"float64", "f64", "fp64", "double"}},
    {DType::kFloat16, 'f', 2, {"float16", "f16", "fp16", "half"}},
    {DType::kBFloat16, 'f', 2, {"bfloat16", "bf16"}},
    {DType::kInt32, 'i', 4, {"int32", "i32"}},
    {DType::kInt64, 'i', 8, {"int64", "i64"}},
    {DType::kUInt8, 'i', 1, {"uint8", "u8", "byte"}},
    {DType::kInt8, 'i', 1, {"int8", "i8"}},
    {DType::kBool, 'b', 1, {"bool"}},
    {DType::kComplex64, 'c', 8, {"complex64", "c64"}},
    {DType::kComplex128, 'c', 16, {"complex128", "c128"}},
    {DType::kFloat8E4M3, 'v', 1, {"float8_e4m3", "f8e4m3"}},
    {DType::kFloat8E5M2, 'v', 1, {"float8_e5m2", "f8e5m2"}}};

constexpr const DTypeTraits& traits_of(DType dtype) {
  return kDTypes[static_cast<std::size_t>(dtype)];
}

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) { return traits_of(dtype).bytes; }
/// True for the floating-point types with which kernels compute.
constexpr bool is_float(DType dtype) { return traits_of(dtype).kind == 'f'; }
/// True for float16 and bfloat16.
constexpr bool is_16bit_float(DType dtype) { return is_float(dtype) && size_of(dtype) == 2; }
/// True for the types with which kernels compute, which are the dtypes of gradients.
constexpr bool is_number(DType dtype) { return is_float(dtype) || traits_of(dtype).kind == 'i'; }
/// True for complex numbers.
constexpr bool is_complex(DType dtype) { return traits_of(dtype).kind == 'c'; }

/// All dtypes, for loops.
inline constexpr auto kAllDTypes = values_where<kDTypes, is_value<DType>>();
/// All dtypes for which `is_number` is true.
inline constexpr auto kNumberDTypes = values_where<kDTypes, is_number>();

/// Returns the printed name: "float32", "bfloat16", ...
std::string_view to_string(DType dtype);
/// Returns the dtype that has the name `text`, or an empty value if there is none.
std::optional<DType> parse_dtype(std::string_view text);

}  // namespace kolo
