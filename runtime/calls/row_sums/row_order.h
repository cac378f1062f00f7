#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/kernels/reduce_kernels.h"

namespace kolo {

/// A list of rows, by index: the distinct indices, and the rows that have each of them.
///
///   rows of   7 2 7 5    indices    2 5 7
///                        positions  1 3 0 2
///                        ends       1 2 4
struct RowOrder {
  std::vector<std::int64_t> indices;  ///< Ascending.
  /// Indices into the list, grouped by row index and in list order within a group.
  std::vector<std::size_t> positions;
  std::vector<std::size_t> ends;     ///< End of each group in `positions`.
  std::vector<std::size_t> scratch;  ///< For the next use.

  /// Orders the rows with these indices, which are less than `height`; memory is reused. Cost: a
  /// pass over the list for each 11 bits of `height`; one if the list is ascending.
  void assign(std::span<const std::int64_t> list, std::size_t height);

  /// Whether the list equals `indices`.
  bool is_identity() const { return positions.empty(); }
  /// Number of rows in the list.
  std::size_t count() const { return is_identity() ? indices.size() : positions.size(); }
  /// The rows of each distinct index.
  RowGroups groups() const {
    return {.count = indices.size(), .positions = positions, .ends = ends};
  }
};

/// Position of the first index that lies outside a table of `height` rows.
std::optional<std::size_t> first_outside(std::span<const std::int64_t> indices, std::size_t height);

}  // namespace kolo
