#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "comm/schedule/bucket_layout.h"

namespace kolo {

/// The extents of parts that lie side by side: equal ones take no memory.
///
/// Threads: immutable; any. Cost: copies share the counts.
class PartExtents {
 public:
  PartExtents() = default;
  /// So many parts of `each` elements.
  PartExtents(std::size_t parts, std::size_t each) : parts_(parts), each_(each) {}
  /// Not explicit: a list of counts is one of these.
  PartExtents(std::span<const std::size_t> counts)  // NOLINT(google-explicit-constructor)
      : PartExtents(counts, 1) {}
  PartExtents(const std::vector<std::size_t>& counts)  // NOLINT(google-explicit-constructor)
      : PartExtents(std::span(counts)) {}
  /// So many times as many of each.
  PartExtents(std::span<const std::size_t> counts, std::size_t times);

  std::size_t size() const { return parts_; }
  bool are_equal() const { return ends_ == nullptr; }
  /// Part i, from the beginning of the first one.
  Extent operator[](std::size_t i) const {
    if (are_equal()) return {i * each_, each_};
    const std::size_t begin = i == 0 ? 0 : (*ends_)[i - 1];
    return {begin, (*ends_)[i] - begin};
  }
  /// Elements of all.
  std::size_t total() const { return parts_ == 0 ? 0 : (*this)[parts_ - 1].end(); }

 private:
  std::size_t parts_ = 0, each_ = 0;
  /// Shared, because a plan copies its goal; null if all are equal.
  std::shared_ptr<const std::vector<std::size_t>> ends_;
};

}  // namespace kolo
