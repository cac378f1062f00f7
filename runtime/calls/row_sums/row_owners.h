#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/base/dtype.h"
#include "runtime/buckets/bucket_plan.h"

namespace kolo {

/// A rank's message to all others about its distinct row indices: their number, and as many samples
/// as there are ranks, at equal distances.
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
  /// `descriptions` are those of all ranks, in rank order. Pure: equal on all ranks.
  RowOwners(std::span<const std::int64_t> descriptions, int ranks, std::size_t height);

  /// The end of the range of `owner`; the last one ends at the height.
  std::int64_t end(int owner) const { return ends_[static_cast<std::size_t>(owner)]; }
  /// The number of `indices`, which ascend, in the range of each owner.
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
  /// The expected number of distinct rows if each rank's rows are spread uniformly over the owners'
  /// ranges.
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

/// Predicted times of both exchanges of rows, in microseconds; in device memory those of the
/// device's own collectives. If the result is a table, it is cleared and filled in either case, so
/// neither time includes that.
struct RowPrices {
  double rows_us = 0;   ///< Rows to their owners, which sum them, and the sums to all ranks.
  double table_us = 0;  ///< An all-reduce of the table.
};

/// Pure; `inputs` as those of a plan. Cost: that of choosing algorithms.
RowPrices price_rows(const RowSize& size, const PlanInputs& inputs);

}  // namespace kolo
