#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/base/buffer_view.h"
#include "runtime/buckets/bucket_plan.h"
#include "runtime/calls/rows/row_backend.h"
#include "runtime/calls/rows/row_order.h"
#include "runtime/calls/rows/row_owners.h"
#include "runtime/calls/rows/row_sums.h"

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

/// The device that adds up rows in its memory.
struct RowDevice {
  Device* device = nullptr;
  /// Behind whose work so far this rank's rows are there; empty: they are.
  std::optional<NativeStream> stream = {};
};

/// Why a rank's rows of a table cannot be summed; empty if they can.
std::string problem_with(const TableRows& given);

/// One rank's part in the sum of one table: what it says, sends and receives in each step of a
/// `RowReduction`, whose order its members have, and what it makes of that. Buffers that it gives
/// stay where they are until the next step. On a device rows are there behind `ready`.
///
/// Threads: one at a time.
class TableSum {
 public:
  /// Adds up this rank's rows, which have no problem. `inputs`, `given.rows` and `device` outlive
  /// it; the memory of `result`, which is empty then, is used again.
  TableSum(const PlanInputs& inputs, const TableRows& given, const RowOptions& options,
           RowSums& result, const RowDevice& device);

  /// How many rows this rank has and where they lie; for an all-gather.
  Tensor describe();
  /// How many of them each owner has; for an all-gather.
  Tensor count();
  /// Decides whether rows are exchanged; else the table is, as it is without this call.
  void choose();
  bool exchanges_rows() const { return exchanges_rows_; }

  struct IndicesAndRows {
    Tensor indices, rows;
  };

  /// Rows for their owners; for all-to-alls.
  IndicesAndRows send();
  /// Adds up the rows that this rank owns, and gives their number; for an all-gather.
  Tensor sum_up();
  /// Sums for all; for all-gathers in place.
  IndicesAndRows share();

  /// The table, instead; for an all-reduce in place.
  Tensor spread();

  /// Behind what rows have become so far; null where they have.
  std::shared_ptr<const Event> ready() const { return backend().done(); }
  bool is_ready() const {
    const auto event = ready();
    return event == nullptr || event->done();
  }

  /// Makes the result, which is there once it is ready. Before: all steps are over.
  void finish();
  /// The result, once.
  RowSums take() { return std::move(result_); }

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(inputs_.grid.world_size()); }
  RowTraffic traffic() const {
    return {.ranks = inputs_.grid.world_size(), .counts = memory_->counts};
  }
  /// Rows of so many elements in all, as a table's.
  BufferView elements(std::byte* rows, std::size_t count) const {
    return {rows, count, table_.dtype, table_.memory};
  }
  RowBackend& backend() const { return *(memory_ ? memory_ : result_.memory_)->backend; }
  void add_up(const TableRows& given);
  /// Makes the table of these rows.
  void spread_over_table(std::span<const std::int64_t> indices, const std::byte* rows);
  BufferView whole_table() const;

  const PlanInputs& inputs_;
  const RowTable table_;
  const RowOptions options_;
  std::shared_ptr<RowMemory> memory_;
  const std::byte* rows_ = nullptr;  // this rank's, scaled, once each, in the order of indices
  std::optional<RowOwners> owners_;
  bool exchanges_rows_ = false;
  RowSums result_;
};

}  // namespace kolo
