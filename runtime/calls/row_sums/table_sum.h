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
#include "runtime/calls/row_sums/row_backend.h"
#include "runtime/calls/row_sums/row_order.h"
#include "runtime/calls/row_sums/row_owners.h"
#include "runtime/calls/row_sums/row_sums.h"

namespace kolo {

/// The memory for one table of a row-sparse all-reduce, which its result keeps.
struct RowMemory {
  std::vector<std::int64_t> description, descriptions;  ///< This rank's; all ranks'.
  RowOrder own;                                         ///< This rank's rows.
  RowBytes own_sums;  ///< Not used if the rows are distinct, ascending and not scaled.
  std::vector<std::size_t> own_counts, counts;  ///< Rows per owner; all ranks' rows per pair.
  /// Elements of the rows per pair; later, elements of the sums per owner.
  std::vector<std::size_t> elements;
  std::vector<std::int64_t> received;  ///< Indices of rows that this rank owns.
  RowBytes received_rows;
  RowOrder owned;
  std::size_t owned_count = 0;
  std::vector<std::size_t> owned_counts;  ///< Distinct rows per owner.
  std::vector<std::int64_t> indices;      ///< Indices of the result.
  RowBytes rows, table;
  MemoryKind kind = MemoryKind::kHost;  ///< Memory of the rows; everything else is in host memory.
  std::unique_ptr<RowBackend> backend;  ///< Last: its stream must end before the memory is freed.
};

/// The device that adds up rows in its memory.
struct RowDevice {
  Device* device = nullptr;
  /// The rows are ready after the work enqueued on this stream; empty if they are ready now.
  std::optional<NativeStream> stream = {};
};

/// Returns why a rank's rows of a table cannot be summed; empty if they can.
std::string problem_with(const TableRows& given);

/// One rank's part in the sum of one table: the buffers that it sends and receives in each step of
/// a `RowReduction`, and the computation between. The functions are declared in the order of the
/// steps. Buffers stay valid until the next step; on a device the rows in them are ready after
/// `ready`.
///
/// Threads: one at a time.
class TableSum {
 public:
  /// Adds up this rank's rows. Precondition: `problem_with(given)` is empty, and `inputs`,
  /// `given.rows` and the device outlive this object. Empties `result`, and reuses its memory.
  TableSum(const PlanInputs& inputs, const TableRows& given, const RowOptions& options,
           RowSums& result, const RowDevice& device);

  /// Returns the number and distribution of this rank's rows, for an all-gather.
  Tensor describe();
  /// Returns the number of this rank's rows for each owner, for an all-gather.
  Tensor count();
  /// Chooses whether rows or the table are exchanged.
  void choose();
  bool exchanges_rows() const { return exchanges_rows_; }

  struct IndicesAndRows {
    Tensor indices, rows;
  };

  /// Returns the rows for their owners, for all-to-alls.
  IndicesAndRows send();
  /// Adds up the rows that this rank owns, and returns the number of sums, for an all-gather.
  Tensor sum_up();
  /// Returns the sums for all ranks, for all-gathers in place.
  IndicesAndRows share();

  /// Fills the table with this rank's rows and returns it, for an all-reduce in place.
  Tensor spread();

  /// Returns the event after the row sums begun so far; null if these are complete.
  std::shared_ptr<const Event> ready() const { return backend().done(); }
  bool is_ready() const {
    const auto event = ready();
    return event == nullptr || event->done();
  }

  /// Makes the result, which is complete after `ready`. Precondition: all steps are over.
  void finish();
  /// Returns the result; call it once.
  RowSums take() { return std::move(result_); }

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(inputs_.grid.world_size()); }
  RowTraffic traffic() const {
    return {.ranks = inputs_.grid.world_size(), .counts = memory_->counts};
  }
  /// Returns a view of `count` elements of rows, with the table's dtype and memory.
  BufferView elements(std::byte* rows, std::size_t count) const {
    return {rows, count, table_.dtype, table_.memory};
  }
  RowBackend& backend() const { return *(memory_ ? memory_ : result_.memory_)->backend; }
  void add_up(const TableRows& given);
  /// Copies `rows` to the rows `indices` of the table.
  void spread_over_table(std::span<const std::int64_t> indices, const std::byte* rows);
  BufferView whole_table() const;

  const PlanInputs& inputs_;
  const RowTable table_;
  const RowOptions options_;
  std::shared_ptr<RowMemory> memory_;
  const std::byte* rows_ = nullptr;  // this rank's distinct rows, scaled, ascending by index
  std::optional<RowOwners> owners_;
  bool exchanges_rows_ = false;
  RowSums result_;
};

}  // namespace kolo
