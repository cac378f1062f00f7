#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "comm/base/buffer_view.h"
#include "comm/base/dtype.h"
#include "comm/base/element.h"
#include "comm/base/reduction.h"
#include "comm/base/span.h"

namespace kolo {

struct RowMemory;

/// The shape of a table of which a row-sparse all-reduce sums rows; the same on all ranks.
struct RowTable {
  std::size_t height = 0;  ///< Rows.
  std::size_t width = 0;   ///< Elements of a row.
  GivenDType dtype;
  /// The place of rows and sums, kHost or kDevice; indices are always in host memory.
  MemoryKind memory = MemoryKind::kHost;

  std::size_t row_bytes() const { return width * size_of(dtype); }
  std::size_t bytes() const { return height * row_bytes(); }

  friend bool operator==(const RowTable& a, const RowTable& b) {
    return a.height == b.height && a.width == b.width && DType(a.dtype) == DType(b.dtype) &&
           a.memory == b.memory;
  }
};

/// One rank's rows of a table: one for each of `indices`, row after row. The memory is the
/// caller's, and of the table's kind.
struct TableRows {
  RowTable table;
  Span<const std::int64_t> indices = {};
  const void* rows = nullptr;
};

/// A form of a gradient that is zero but for some rows.
enum class RowForm : std::uint8_t {
  kAuto,   ///< Whichever is predicted to take less time.
  kRows,   ///< Some rows and their indices.
  kTable,  ///< All rows of the table.
};

/// Settings of a row-sparse all-reduce; the same on all ranks.
struct RowOptions {
  ReduceOp op = ReduceOp::kSum;     ///< kSum or kAverage (the sum over the number of ranks).
  RowForm result = RowForm::kAuto;  ///< Of the result; kAuto: that of the exchange.
  /// How elements move: rows to the ranks that sum them and from these to all, or the whole table
  /// by an all-reduce. A table that is exchanged cannot become rows.
  RowForm exchange = RowForm::kAuto;
  /// Only floating-point elements can be scaled. A rank's contribution to a row is its sum of that
  /// row, rounded once more after it is scaled.
  Scales scales = {};

  friend bool operator==(const RowOptions& a, const RowOptions& b) {
    return a.op == b.op && a.result == b.result && a.exchange == b.exchange && a.scales == b.scales;
  }
};

/// The result of a row-sparse all-reduce, equal on all ranks. Keeps its memory for further calls,
/// so use one again; with rows in device memory no longer than the runtime. Threads: those of a
/// plain value.
class RowSums {
 public:
  RowSums();
  /// Leaves the other one empty.
  RowSums(RowSums&&) noexcept;
  /// Leaves the other one empty.
  RowSums& operator=(RowSums&&) noexcept;
  ~RowSums();

  /// Whether `rows` are all rows of the table, and not those of `indices`.
  bool is_table() const { return is_table_; }
  /// Whether rows were exchanged, and not the table.
  bool exchanged_rows() const { return exchanged_rows_; }
  /// The rows that some rank had, ascending. Empty if the table was exchanged.
  Span<const std::int64_t> indices() const;
  /// One sum for each index, or for each row of the table; row after row.
  BufferView rows() const { return rows_; }

 private:
  friend class TableSum;

  bool is_table_ = false;
  bool exchanged_rows_ = false;
  BufferView rows_ = {};
  std::shared_ptr<RowMemory> memory_;  // shared with operations that have timed out
};

}  // namespace kolo
