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

/// The shape of a table for a row-sparse all-reduce; the same on all ranks.
struct RowTable {
  std::size_t height = 0;  ///< Rows.
  std::size_t width = 0;   ///< Elements of a row.
  GivenDType dtype;
  /// Memory of rows and sums, kHost or kDevice; indices are always in host memory.
  MemoryKind memory = MemoryKind::kHost;

  std::size_t row_bytes() const { return width * size_of(dtype); }
  std::size_t bytes() const { return height * row_bytes(); }

  friend bool operator==(const RowTable& a, const RowTable& b) {
    return a.height == b.height && a.width == b.width && DType(a.dtype) == DType(b.dtype) &&
           a.memory == b.memory;
  }
};

/// One rank's rows of a table: `rows` has one row per element of `indices`, contiguously. The
/// caller owns the memory, whose kind is `table.memory`.
struct TableRows {
  RowTable table;
  Span<const std::int64_t> indices = {};
  const void* rows = nullptr;
};

/// The form in which a gradient with few nonzero rows is exchanged or returned.
enum class RowForm : std::uint8_t {
  kAuto,   ///< The form with the lower predicted time.
  kRows,   ///< Some rows and their indices.
  kTable,  ///< All rows of the table.
};

/// Settings of a row-sparse all-reduce; the same on all ranks.
struct RowOptions {
  ReduceOp op = ReduceOp::kSum;     ///< kSum or kAverage (the sum over the number of ranks).
  RowForm result = RowForm::kAuto;  ///< Form of the result; kAuto: as `exchange`.
  /// Form of the exchange: rows, which owners sum and send to all ranks, or the whole table, by an
  /// all-reduce. If the table is exchanged, the result cannot be rows.
  RowForm exchange = RowForm::kAuto;
  /// Scales, for floating-point elements only. Each rank sums its rows of equal index, scales the
  /// sum, and rounds it once more.
  Scales scales = {};

  friend bool operator==(const RowOptions& a, const RowOptions& b) {
    return a.op == b.op && a.result == b.result && a.exchange == b.exchange && a.scales == b.scales;
  }
};

/// The result of a row-sparse all-reduce, equal on all ranks. It keeps its memory, so reuse the
/// object for further calls. With rows in device memory it must not outlive the runtime. Threads:
/// one at a time.
class RowSums {
 public:
  RowSums();
  /// Leaves the other object empty.
  RowSums(RowSums&&) noexcept;
  /// Leaves the other object empty.
  RowSums& operator=(RowSums&&) noexcept;
  ~RowSums();

  /// Returns whether `rows` are all rows of the table; otherwise they are the rows of `indices`.
  bool is_table() const { return is_table_; }
  /// Returns whether rows were exchanged; otherwise the table was exchanged.
  bool exchanged_rows() const { return exchanged_rows_; }
  /// Returns ascending indices of the rows that any rank passed. Empty if the table was exchanged.
  Span<const std::int64_t> indices() const;
  /// Returns the sums, contiguous: one row per element of `indices()`, or all rows of the table.
  BufferView rows() const { return rows_; }

 private:
  friend class TableSum;

  bool is_table_ = false;
  bool exchanged_rows_ = false;
  BufferView rows_ = {};
  std::shared_ptr<RowMemory> memory_;  // shared with operations that have timed out
};

}  // namespace kolo
