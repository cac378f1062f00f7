#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/calls/rows/row_backend.h"
#include "runtime/calls/rows/row_order.h"

namespace kolo {

/// The memory of one table of a row-sparse all-reduce; later of its result.
struct RowMemory {
  std::vector<std::int64_t> description, descriptions;  ///< This rank's, and those of all.
  RowOrder own;                                         ///< This rank's rows.
  RowBytes own_sums;  ///< Unless it has each row once, in order, and scales none.
  std::vector<std::size_t> own_counts, counts;  ///< By owner; of all ranks, by pair.
  std::vector<std::size_t> elements;            ///< Of those rows; later of those of each owner.
  std::vector<std::int64_t> received;           ///< Indices that this rank owns.
  RowBytes received_rows;
  RowOrder owned;
  std::size_t owned_count = 0;
  std::vector<std::size_t> owned_counts;  ///< By owner.
  std::vector<std::int64_t> indices;      ///< Of the result.
  RowBytes rows, table;
  MemoryKind kind = MemoryKind::kHost;  ///< Of rows; the rest is in host memory.
  std::unique_ptr<RowBackend> backend;  ///< Last: its stream ends before the memory does.
};

}  // namespace kolo
