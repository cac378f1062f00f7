#pragma once

#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>

#include "comm/base/dtype.h"
#include "comm/base/half.h"

namespace kolo {

/// Whether `T` is a complex number type of any library, with `value_type`, `real()` and `imag()`.
template <typename T, typename = void>
inline constexpr bool kIsComplexNumber = false;
template <typename T>
inline constexpr bool kIsComplexNumber<
    T, std::void_t<typename T::value_type, decltype(std::declval<const T&>().real()),
                   decltype(std::declval<const T&>().imag())>> = true;

/// The dtype of a C++ element type, or empty for types that Kolo does not know, such as void,
/// std::byte and char. A program may specialise this variable for further types, such as another
/// library's half.
template <typename T>
inline constexpr std::optional<DType> kDTypeOf = []() -> std::optional<DType> {
  if constexpr (std::is_same_v<T, float>) return DType::kFloat32;
  if constexpr (std::is_same_v<T, double>) return DType::kFloat64;
  if constexpr (std::is_same_v<T, Float16>) return DType::kFloat16;
  if constexpr (std::is_same_v<T, BFloat16>) return DType::kBFloat16;
  if constexpr (std::is_same_v<T, bool>) return DType::kBool;
  if constexpr (std::is_same_v<T, signed char>) return DType::kInt8;
  if constexpr (std::is_same_v<T, unsigned char>) return DType::kUInt8;
  // `long` and `long long` are distinct types even where they have the same size.
  if constexpr (std::is_same_v<T, int> || std::is_same_v<T, long> || std::is_same_v<T, long long>) {
    if constexpr (sizeof(T) == 4) return DType::kInt32;
    if constexpr (sizeof(T) == 8) return DType::kInt64;
  }
  // Complex types that have the layout of std::complex.
  if constexpr (kIsComplexNumber<T>) {
    using Part = typename T::value_type;
    if constexpr (sizeof(T) == 2 * sizeof(Part)) {
      if constexpr (std::is_same_v<Part, float>) return DType::kComplex64;
      if constexpr (std::is_same_v<Part, double>) return DType::kComplex128;
    }
  }
  return std::nullopt;
}();

/// Whether `T` has a known dtype.
template <typename T>
inline constexpr bool kIsElement = kDTypeOf<T>.has_value();

/// The element type of a contiguous range.
template <typename Range>
using ElementOf = std::remove_pointer_t<decltype(std::data(std::declval<Range&>()))>;

/// Whether `Range&&` is a vector, an array or a span of elements with a known dtype whose memory
/// outlives the expression. A temporary qualifies only if it is a span: trivially copyable, and
/// elements of a const object are not const.
template <typename Range, typename = void>
inline constexpr bool kIsElements = false;
template <typename Range>
inline constexpr bool
    kIsElements<Range, std::void_t<ElementOf<Range>, decltype(std::size(std::declval<Range&>()))>> =
        kIsElement<ElementOf<Range>> &&
        (std::is_lvalue_reference_v<Range> ||
         (std::is_trivially_copyable_v<Range> &&
          std::is_same_v<ElementOf<const std::remove_reference_t<Range>>, ElementOf<Range>>));

/// A dtype without a default value, for struct members that must be initialised.
class GivenDType {
 public:
  constexpr GivenDType(DType dtype) : dtype_(dtype) {}  // NOLINT(*-explicit-*): same value.
  constexpr operator DType() const { return dtype_; }   // NOLINT(*-explicit-*): same value.

 private:
  DType dtype_;
};

}  // namespace kolo
