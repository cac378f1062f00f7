#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kolo {

/// What a rank tells all others of its distinct row indices: how many there are, and as many
/// samples as there are ranks, at equal distances.
///
///   [count, samples...]
///
/// Before: `indices` ascend. Threads: pure.
std::vector<std::int64_t> describe_rows(std::span<const std::int64_t> indices, int ranks);

/// The owners of a table's rows: ranges of indices, in the order of ranks.
///
/// A sample stands for the rows up to it since the last one, so owners get about equally many
/// rows from all ranks, however indices are distributed.
/// Source: Shi and Schaeffer, Parallel sorting by regular sampling, JPDC 1992.
class RowOwners {
 public:
  /// `descriptions` are those of all ranks, in their order. Pure: equal on all ranks.
  RowOwners(std::span<const std::int64_t> descriptions, int ranks, std::size_t height);

  /// Past the last index that `owner` owns; that of the last owner is the height.
  std::int64_t end(int owner) const { return ends_[static_cast<std::size_t>(owner)]; }
  /// The number of `indices`, which ascend, of each owner.
  std::vector<std::size_t> counts(std::span<const std::int64_t> indices) const;

 private:
  std::vector<std::int64_t> ends_;
};

/// The rows that ranks exchange; equal on all ranks.
struct RowTraffic {
  int ranks = 1;
  /// counts[s * ranks + r]: rows that rank s has for owner r.
  std::span<const std::size_t> counts;

  std::size_t sent(int rank) const;
  std::size_t received(int owner) const;
  /// The largest number of rows that one rank sends, or one owner receives.
  std::size_t busiest() const;
  /// The distinct rows to expect if each rank's lie anywhere in the range of their owner.
  double distinct(const RowOwners& owners) const;
};

}  // namespace kolo
