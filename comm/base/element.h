#pragma once

#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>

#include "comm/base/dtype.h"
#include "comm/base/half.h"

namespace kolo {

/// Whether it is a complex number, also of another library, with a real and an imaginary part of
/// one type.
template <typename T, typename = void>
inline constexpr bool kIsComplexNumber = false;
template <typename T>
inline constexpr bool kIsComplexNumber<
    T, std::void_t<typename T::value_type, decltype(std::declval<const T&>().real()),
                   decltype(std::declval<const T&>().imag())>> = true;

/// The dtype of elements of a C++ type; empty for a type that Kolo does not know, such as void,
/// std::byte and char. A program may specialise it for types of its own: a half of another library.
template <typename T>
inline constexpr std::optional<DType> kDTypeOf = []() -> std::optional<DType> {
  if constexpr (std::is_same_v<T, float>) return DType::kFloat32;
  if constexpr (std::is_same_v<T, double>) return DType::kFloat64;
  if constexpr (std::is_same_v<T, Float16>) return DType::kFloat16;
  if constexpr (std::is_same_v<T, BFloat16>) return DType::kBFloat16;
  if constexpr (std::is_same_v<T, bool>) return DType::kBool;
  if constexpr (std::is_same_v<T, signed char>) return DType::kInt8;
  if constexpr (std::is_same_v<T, unsigned char>) return DType::kUInt8;
  // `long` and `long long` are two types of one size.
  if constexpr (std::is_same_v<T, int> || std::is_same_v<T, long> || std::is_same_v<T, long long>) {
    if constexpr (sizeof(T) == 4) return DType::kInt32;
    if constexpr (sizeof(T) == 8) return DType::kInt64;
  }
  // Those that are laid out like std::complex.
  if constexpr (kIsComplexNumber<T>) {
    using Part = typename T::value_type;
    if constexpr (sizeof(T) == 2 * sizeof(Part)) {
      if constexpr (std::is_same_v<Part, float>) return DType::kComplex64;
      if constexpr (std::is_same_v<Part, double>) return DType::kComplex128;
    }
  }
  return std::nullopt;
}();

/// Whether the dtype of a type is known.
template <typename T>
inline constexpr bool kIsElement = kDTypeOf<T>.has_value();

/// The type of elements that lie side by side in memory which knows them.
template <typename Range>
using ElementOf = std::remove_pointer_t<decltype(std::data(std::declval<Range&>()))>;

/// Whether it is memory that knows its elements and their number, and outlives the expression: a
/// vector, an array, a span. `Range` is deduced from `Range&&`. What is not named is a span if
/// copies are copies of bytes and have no elements of their own, which would be const in a const
/// one.
template <typename Range, typename = void>
inline constexpr bool kIsElements = false;
template <typename Range>
inline constexpr bool
    kIsElements<Range, std::void_t<ElementOf<Range>, decltype(std::size(std::declval<Range&>()))>> =
        kIsElement<ElementOf<Range>> &&
        (std::is_lvalue_reference_v<Range> ||
         (std::is_trivially_copyable_v<Range> &&
          std::is_same_v<ElementOf<const std::remove_reference_t<Range>>, ElementOf<Range>>));

/// A dtype that has no default: whoever fills in a struct says it.
class GivenDType {
 public:
  constexpr GivenDType(DType dtype) : dtype_(dtype) {}  // NOLINT(*-explicit-*): stands for it.
  constexpr operator DType() const { return dtype_; }   // NOLINT(*-explicit-*): stands for it.

 private:
  DType dtype_;
};

}  // namespace kolo
