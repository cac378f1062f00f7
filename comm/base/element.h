#pragma once

#include <concepts>
#include <optional>
#include <ranges>
#include <type_traits>

#include "comm/base/dtype.h"
#include "comm/base/half.h"

namespace kolo {

/// A complex number, also of another library, with a real and an imaginary part of one type.
template <typename T>
concept ComplexNumber = requires(const T& number) {
  typename T::value_type;
  { number.real() } -> std::convertible_to<typename T::value_type>;
  { number.imag() } -> std::convertible_to<typename T::value_type>;
};

/// The dtype of elements of a C++ type; empty for a type that Kolo does not know, such as void,
/// std::byte and char. A program may specialise it for types of its own: a half of another library.
template <typename T>
inline constexpr std::optional<DType> kDTypeOf = []() -> std::optional<DType> {
  if constexpr (std::same_as<T, float>) return DType::kFloat32;
  if constexpr (std::same_as<T, double>) return DType::kFloat64;
  if constexpr (std::same_as<T, Float16>) return DType::kFloat16;
  if constexpr (std::same_as<T, BFloat16>) return DType::kBFloat16;
  if constexpr (std::same_as<T, bool>) return DType::kBool;
  if constexpr (std::same_as<T, signed char>) return DType::kInt8;
  if constexpr (std::same_as<T, unsigned char>) return DType::kUInt8;
  // `long` and `long long` are two types of one size.
  if constexpr (std::same_as<T, int> || std::same_as<T, long> || std::same_as<T, long long>) {
    if constexpr (sizeof(T) == 4) return DType::kInt32;
    if constexpr (sizeof(T) == 8) return DType::kInt64;
  }
  // Those that are laid out like std::complex.
  if constexpr (ComplexNumber<T>) {
    using Part = typename T::value_type;
    if constexpr (sizeof(T) == 2 * sizeof(Part)) {
      if constexpr (std::same_as<Part, float>) return DType::kComplex64;
      if constexpr (std::same_as<Part, double>) return DType::kComplex128;
    }
  }
  return std::nullopt;
}();

/// A type whose dtype is known.
template <typename T>
concept Element = kDTypeOf<T>
!= std::nullopt;

/// Memory that knows its elements and their number, and outlives the expression: a vector, an
/// array, a span.
template <typename Range>
concept Elements = std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range> &&
    std::ranges::borrowed_range<Range> &&
    Element<std::remove_reference_t<std::ranges::range_reference_t<Range>>>;

/// A dtype that has no default: whoever fills in a struct says it.
class GivenDType {
 public:
  constexpr GivenDType(DType dtype) : dtype_(dtype) {}  // NOLINT(*-explicit-*): stands for it.
  constexpr operator DType() const { return dtype_; }   // NOLINT(*-explicit-*): stands for it.

 private:
  DType dtype_;
};

}  // namespace kolo
