#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kolo::trainer {

/// The gradient of a table of which a step uses few rows: the rows that are not zero.
///
/// In backward passes it holds one rank's contributions, of which several may be for one row. The
/// sum over ranks replaces them by the averages, each row once.
///
/// Threads: one.
class RowGradient {
 public:
  /// Elements of a row.
  explicit RowGradient(std::size_t width) : width_(width) {}

  std::size_t width() const { return width_; }
  std::span<const std::int64_t> indices() const { return indices_; }
  /// Shape: [indices().size(), width()].
  std::span<const float> values() const { return values_; }
  std::span<const float> values(std::size_t i) const {
    return std::span(values_).subspan(i * width_, width_);
  }

  void clear() {
    indices_.clear();
    values_.clear();
  }

  /// One more contribution to row `index`: factor times `row`.
  void append(std::int64_t index, std::span<const float> row, float factor) {
    indices_.push_back(index);
    for (const float value : row) values_.push_back(factor * value);
  }

 private:
  std::size_t width_;
  std::vector<std::int64_t> indices_;
  std::vector<float> values_;
};

}  // namespace kolo::trainer
