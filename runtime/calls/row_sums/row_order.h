#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/kernels/reduce_kernels.h"

namespace kolo {

/// A list of rows, grouped by row index: the distinct indices, and the rows with each index.
///
///   rows of   7 2 7 5    indices    2 5 7
///                        positions  1 3 0 2
///                        ends       1 2 4
struct RowOrder {
  std::vector<std::int64_t> indices;  ///< Ascending.
  /// Indices into the list, grouped by row index and in list order within a group.
  std::vector<std::size_t> positions;
  std::vector<std::size_t> ends;     ///< End of each group in `positions`.
  std::vector<std::size_t> scratch;  ///< Working memory of `assign`.

  /// Groups rows with the indices `list`, which are less than `height`. Reuses memory. Cost: one
  /// pass over the list for each 11 bits of `height`; one pass in all if the list strictly ascends.
  void assign(std::span<const std::int64_t> list, std::size_t height);

  /// Returns whether the list equals `indices`, because it strictly ascends.
  bool is_identity() const { return positions.empty(); }
  /// Returns the number of rows in the list.
  std::size_t count() const { return is_identity() ? indices.size() : positions.size(); }
  /// Returns the rows of each distinct index.
  RowGroups groups() const {
    return {.count = indices.size(), .positions = positions, .ends = ends};
  }
};

/// Returns the position of the first index outside a table of `height` rows, if there is one.
std::optional<std::size_t> first_outside(std::span<const std::int64_t> indices, std::size_t height);

}  // namespace kolo
