#pragma once

#include <cstddef>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>

#if __cplusplus >= 202002L
#include <ranges>
#endif

namespace kolo {

template <typename T>
class Span;

/// Whether a `Span<T>` may view `Range&&`: a named container, an array or a view. If T is const, a
/// temporary container qualifies, too, because it lives until the end of the call that takes the
/// span.
template <typename Range, typename T, typename = void>
inline constexpr bool kIsViewableAs = false;
template <typename Range, typename T>
inline constexpr bool kIsViewableAs<Range, T,
                                    std::void_t<decltype(std::data(std::declval<Range&>())),
                                                decltype(std::size(std::declval<Range&>()))>> =
    std::is_convertible_v<std::remove_pointer_t<decltype(std::data(std::declval<Range&>()))> (*)[],
                          T (*)[]> &&
    (std::is_lvalue_reference_v<Range> || std::is_const_v<T> ||
     std::is_trivially_copyable_v<std::remove_reference_t<Range>>);

/// A view of contiguous elements, which it does not own. Like std::span, but the same type in C++17
/// and later standards.
template <typename T>
class Span {
 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;
  using size_type = std::size_t;
  using reference = T&;
  using iterator = T*;

  constexpr Span() = default;
  constexpr Span(T* data, std::size_t size) : data_(data), size_(size) {}
  /// Views all elements of a vector, an array or another view, including std::span.
  template <typename Range,
            std::enable_if_t<kIsViewableAs<Range, T> && !std::is_same_v<std::decay_t<Range>, Span>,
                             int> = 0>
  constexpr Span(Range&& range)  // NOLINT(*-explicit-*): it is the same memory.
      : Span(std::data(range), std::size(range)) {}

  constexpr T* data() const { return data_; }
  constexpr std::size_t size() const { return size_; }
  constexpr std::size_t size_bytes() const { return size_ * sizeof(T); }
  constexpr bool empty() const { return size_ == 0; }
  constexpr T* begin() const { return data_; }
  constexpr T* end() const { return data_ + size_; }
  constexpr T& operator[](std::size_t index) const { return data_[index]; }
  constexpr T& front() const { return data_[0]; }
  constexpr T& back() const { return data_[size_ - 1]; }
  constexpr Span first(std::size_t count) const { return {data_, count}; }
  constexpr Span last(std::size_t count) const { return {data_ + (size_ - count), count}; }
  constexpr Span subspan(std::size_t offset) const { return {data_ + offset, size_ - offset}; }
  constexpr Span subspan(std::size_t offset, std::size_t count) const {
    return {data_ + offset, count};
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

/// A parameter type for one `T` or a list of `T`. Copies a single element, and views a list.
template <typename T>
class OneOrMore {
 public:
  /// An empty list.
  constexpr OneOrMore() = default;
  constexpr OneOrMore(const T& one)  // NOLINT(*-explicit-*): a list of one.
      : one_(one) {}
  /// A list of what converts to one, such as a vector of numbers to a `ConstBuffer`.
  template <typename One,
            std::enable_if_t<std::is_convertible_v<One, T> && !kIsViewableAs<One, const T> &&
                                 !std::is_base_of_v<T, std::decay_t<One>> &&
                                 !std::is_base_of_v<OneOrMore, std::decay_t<One>>,
                             int> = 0>
  constexpr OneOrMore(One&& one)  // NOLINT(*-explicit-*): a list of one.
      : one_(std::forward<One>(one)) {}
  /// Views all elements of a vector, an array or a span.
  template <typename Range, std::enable_if_t<kIsViewableAs<Range, const T> &&
                                                 !std::is_base_of_v<OneOrMore, std::decay_t<Range>>,
                                             int> = 0>
  constexpr OneOrMore(Range&& list)  // NOLINT(*-explicit-*): it is the same list.
      : list_(list) {}

  constexpr const T* data() const { return one_ ? &*one_ : list_.data(); }
  constexpr std::size_t size() const { return one_ ? 1 : list_.size(); }
  constexpr bool empty() const { return size() == 0; }
  constexpr const T* begin() const { return data(); }
  constexpr const T* end() const { return data() + size(); }
  constexpr const T& operator[](std::size_t index) const { return data()[index]; }
  constexpr const T& front() const { return data()[0]; }

 private:
  std::optional<T> one_;
  Span<const T> list_ = {};
};

}  // namespace kolo

#if __cplusplus >= 202002L
template <typename T>
inline constexpr bool std::ranges::enable_borrowed_range<kolo::Span<T>> = true;
template <typename T>
inline constexpr bool std::ranges::enable_view<kolo::Span<T>> = true;
#endif
