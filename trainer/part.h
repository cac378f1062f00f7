#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "trainer/tensor.h"

namespace kolo::trainer {

/// The part of a tensor that one of several ranks has: a range of one axis. If the axis consists of
/// several equal sections, such as query, key and value, each section is divided among the ranks:
///
///     axis 0, 4 rows, 2 ways    1 section     rank of each row: 0 0 1 1
///                               2 sections    rank of each row: 0 1 0 1
struct Part {
  std::size_t index = 0;     ///< Index of this part, below `ways`.
  std::size_t ways = 1;      ///< Number of parts; 1 if the part is the whole tensor.
  std::size_t axis = 0;      ///< Index of the divided axis in the shape.
  std::size_t sections = 1;  ///< Number of sections of the axis, a divisor of its length.

  friend bool operator==(const Part&, const Part&) = default;

  bool is_whole() const { return ways == 1; }
  /// The bounds of this part in a section with `extent` elements. Parts differ by at most 1
  /// element.
  std::size_t begin(std::size_t extent) const { return index * extent / ways; }
  std::size_t end(std::size_t extent) const { return (index + 1) * extent / ways; }

  /// Returns the shape of this part of a tensor of shape `whole`.
  Shape shape_of(Shape whole) const {
    if (is_whole()) return whole;
    const std::size_t extent = whole.at(axis) / sections;
    whole[axis] = sections * (end(extent) - begin(extent));
    return whole;
  }

  /// Copies this part of a tensor of shape `shape` from `whole` to `part`.
  void take(const Shape& shape, std::span<const float> whole, std::span<float> part) const {
    for_runs(shape, [&](std::size_t in_whole, std::size_t in_part, std::size_t count) {
      std::ranges::copy(whole.subspan(in_whole, count), part.subspan(in_part).begin());
    });
  }
  /// Copies `part` to its place in a tensor of shape `shape`.
  void put(const Shape& shape, std::span<const float> part, std::span<float> whole) const {
    for_runs(shape, [&](std::size_t in_whole, std::size_t in_part, std::size_t count) {
      std::ranges::copy(part.subspan(in_part, count), whole.subspan(in_whole).begin());
    });
  }

 private:
  /// Calls use(offset in the whole tensor, offset in the part, count) for each contiguous run of
  /// `count` elements.
  template <typename Use>
  void for_runs(const Shape& shape, const Use& use) const {
    std::size_t outer = sections;
    std::size_t inner = 1;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (i < axis) outer *= shape[i];
      if (i > axis) inner *= shape[i];
    }
    const std::size_t extent = shape.at(axis) / sections;
    const std::size_t run = (end(extent) - begin(extent)) * inner;
    for (std::size_t i = 0; i < outer; ++i) {
      use((i * extent + begin(extent)) * inner, i * run, run);
    }
  }
};

}  // namespace kolo::trainer
