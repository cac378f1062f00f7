#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/base/dtype.h"

namespace kolo {

/// Rows of a list that belong together: group i is those at positions[ends[i - 1]] to
/// positions[ends[i] - 1], at least one. Without positions it is row i alone.
struct RowGroups {
  std::size_t count = 0;
  std::span<const std::size_t> positions = {};
  std::span<const std::size_t> ends = {};
};

/// Adds up the rows of each group in their order, times `scale`, to row i of `sums`, which may not
/// overlap `rows`. A row has `width` elements of `dtype`.
///
/// Bits:   those of `reduce`; a group of one row with scale 1.0 keeps its bits.
/// Before: dtype is one of `kNumberDTypes`. Pure.
void sum_rows(const RowGroups& groups, const std::byte* rows, std::size_t width, DType dtype,
              double scale, std::byte* sums);

/// Writes row i of `rows` to place `indices[i]` of `table`. No index comes twice. Pure.
void spread_rows(std::span<const std::int64_t> indices, const std::byte* rows,
                 std::size_t row_bytes, std::byte* table);

}  // namespace kolo
