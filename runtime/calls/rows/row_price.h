#pragma once

#include <cstddef>

#include "comm/base/dtype.h"
#include "runtime/buckets/bucket_plan.h"

namespace kolo {

/// Rows to be summed, as far as it decides what that costs; equal on all ranks.
struct RowSize {
  std::size_t height = 0;
  std::size_t width = 0;
  DType dtype = DType::kFloat32;
  MemoryKind memory = MemoryKind::kHost;
  double busiest = 0;   ///< Rows that the busiest rank sends to owners, or receives.
  double distinct = 0;  ///< Rows of the result.

  double row_bytes() const { return static_cast<double>(width * size_of(dtype)); }
};

/// The predicted times of both exchanges of rows, in microseconds; in device memory those of the
/// device's own collectives. A table that is the result is cleared and filled in either case, so
/// that is part of neither.
struct RowPrices {
  double rows_us = 0;   ///< Rows to owners, which sum them, and sums to all.
  double table_us = 0;  ///< An all-reduce of the table.
};

/// Pure; `inputs` as those of a plan. Cost: as to choose algorithms.
RowPrices price_rows(const RowSize& size, const PlanInputs& inputs);

}  // namespace kolo
