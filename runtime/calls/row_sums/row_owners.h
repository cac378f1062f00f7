#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/base/dtype.h"
#include "runtime/buckets/bucket_plan.h"

namespace kolo {

/// Makes a rank's message to all ranks about its distinct row indices: their number, and `ranks`
/// samples of them at equal distances.
///
///   [count, samples...]
///
/// Precondition: `indices` ascend. Threads: pure.
std::vector<std::int64_t> describe_rows(std::span<const std::int64_t> indices, int ranks);

/// The owners of a table's rows: ranges of indices, in rank order.
///
/// A sample represents the rows between the last sample and itself, so owners get about equally
/// many rows from all ranks, whatever the distribution of indices.
/// Source: Shi and Schaeffer, Parallel sorting by regular sampling, JPDC 1992.
class RowOwners {
 public:
  /// `descriptions` has the `describe_rows` of all ranks, in rank order. Equal on all ranks.
  RowOwners(std::span<const std::int64_t> descriptions, int ranks, std::size_t height);

  /// Returns the end of the range of `owner`: the first index after it, or `height` for the last.
  std::int64_t end(int owner) const { return ends_[static_cast<std::size_t>(owner)]; }
  /// Returns for each owner how many of `indices`, which must ascend, are in its range.
  std::vector<std::size_t> counts(std::span<const std::int64_t> indices) const;

 private:
  std::vector<std::int64_t> ends_;
};

/// The numbers of rows that ranks exchange; equal on all ranks.
struct RowTraffic {
  int ranks = 1;
  /// counts[s * ranks + r]: number of rows that rank s sends to owner r.
  std::span<const std::size_t> counts;

  std::size_t sent(int rank) const;
  std::size_t received(int owner) const;
  /// Returns the largest number of rows that one rank sends, or one owner receives.
  std::size_t busiest() const;
  /// Returns the expected number of distinct rows for rows spread uniformly over owners' ranges.
  double distinct(const RowOwners& owners) const;
};

/// Properties of rows to be summed that determine the cost; equal on all ranks.
struct RowSize {
  std::size_t height = 0;
  std::size_t width = 0;
  DType dtype = DType::kFloat32;
  MemoryKind memory = MemoryKind::kHost;
  double busiest = 0;   ///< Rows that the busiest rank sends to owners, or receives.
  double distinct = 0;  ///< Rows of the result.

  double row_bytes() const { return static_cast<double>(width * size_of(dtype)); }
};

/// Predicted times of the two forms of exchange, in microseconds. For rows in device memory they
/// are times of native collectives. Neither time includes filling a table as result, because both
/// forms need that.
struct RowPrices {
  double rows_us = 0;   ///< Time to send rows to owners, sum them, and send sums.
  double table_us = 0;  ///< Time of an all-reduce of the table.
};

/// Predicts both times. Pure. Cost: as much as choosing the algorithms of these collectives.
RowPrices price_rows(const RowSize& size, const PlanInputs& inputs);

}  // namespace kolo
