#pragma once

#include <cstddef>
#include <iterator>

namespace kolo {

/// Ranks that follow each other: mostly one, or all.
class RankRange {
 public:
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = int;
    using difference_type = std::ptrdiff_t;
    using pointer = const int*;
    using reference = int;

    constexpr Iterator() = default;
    constexpr explicit Iterator(int rank) : rank_(rank) {}
    constexpr int operator*() const { return rank_; }
    constexpr Iterator& operator++() {
      ++rank_;
      return *this;
    }
    constexpr Iterator operator++(int) { return Iterator(rank_++); }
    friend constexpr bool operator==(Iterator, Iterator) = default;

   private:
    int rank_ = 0;
  };

  constexpr RankRange() = default;
  constexpr RankRange(int first, int end) : first_(first), end_(end) {}
  static constexpr RankRange one(int rank) { return {rank, rank + 1}; }
  static constexpr RankRange all(int world_size) { return {0, world_size}; }

  constexpr std::size_t size() const { return static_cast<std::size_t>(end_ - first_); }
  constexpr bool empty() const { return first_ == end_; }
  constexpr int front() const { return first_; }
  /// After the last one.
  constexpr int end_rank() const { return end_; }
  constexpr bool contains(int rank) const { return first_ <= rank && rank < end_; }
  constexpr Iterator begin() const { return Iterator(first_); }
  constexpr Iterator end() const { return Iterator(end_); }
  friend constexpr bool operator==(const RankRange&, const RankRange&) = default;

 private:
  int first_ = 0, end_ = 0;
};

}  // namespace kolo
