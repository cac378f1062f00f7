#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/buffer_view.h"
#include "comm/base/reduction.h"
#include "runtime/buckets/bucket_plan.h"
#include "runtime/calls/operation_calls.h"
#include "runtime/calls/operations.h"
#include "runtime/calls/rows/row_sums.h"
#include "runtime/calls/rows/table_sum.h"

namespace kolo {

/// A row-sparse all-reduce of one table or of several, which then share all operations:
///
///   all_gather   of how many rows each rank has and where they lie; agrees on the call
///   all_gather   of how many rows each rank has for each owner; decides about each table
///   either  all_to_all   of rows to their owners, which sum them in the order of ranks
///           all_gather   of how many distinct rows each owner has
///           all_gather   of these
///   or      all_reduce   of the table
///
/// In device memory, whose library has no operation on several tensors, rows of each table have
/// operations of their own; everything else about them is in host memory.
///
/// Threads: see `CallSequence`. Errors: as `Group::sparse_all_reduce`.
class RowReduction final : public CallSequence {
 public:
  /// Adds up this rank's rows. The inputs of plans, the rows of `tables` and the device, outlive it
  /// until it is over; the memory of `results`, one for each table and empty then, is used again.
  /// Errors: UsageError; KoloError(kResources).
  RowReduction(const PlanInputs& inputs, std::string_view name, Span<const TableRows> tables,
               const RowOptions& options, Span<RowSums> results, const RowDevice& device = {});

  std::string subject() const override { return name_; }
  Stage next() override;
  bool is_settled() const override;
  std::size_t tables() const { return sums_->size(); }
  /// The results, by table, once. Before: it is over, without an error.
  std::vector<RowSums> take();

 private:
  enum class Phase : std::uint8_t {
    kBegin,     ///< Nothing was agreed on.
    kAgreed,    ///< Numbers of rows and their places are known.
    kCounted,   ///< So are those for each owner.
    kSent,      ///< Owners have rows.
    kSummed,    ///< Numbers of sums are known.
    kGathered,  ///< All have the sums, and the tables that were exchanged.
    kOver,
  };

  const RowTable& any_table() const { return call_.tables.front(); }
  Stage agree();
  Stage count();
  Stage exchange();
  Stage sum_up();
  Stage share();
  /// Rows of some tables, with what they are to be behind.
  struct Rows {
    std::vector<Tensor> each;
    std::vector<std::shared_ptr<const Event>> ready;

    void add(const Tensor& tensor, std::shared_ptr<const Event> behind);
  };
  /// Appends what is done with rows; nothing if there are none.
  void append(Stage& stage, OperationKind kind, std::string_view what, const Rows& rows,
              const Reduction& reduction = ReduceOp::kSum) const;
  std::shared_ptr<Operation> step(OperationKind kind, std::string_view what, const Tensors& tensors,
                                  const Reduction& reduction = ReduceOp::kSum) const;

  const PlanInputs inputs_;
  const RowCall call_;
  const std::string name_;
  OperationPool pool_;
  const OperationCalls calls_;
  Phase phase_ = Phase::kBegin;
  // By table. Shared with the operations, because one that has timed out is still under way.
  const std::shared_ptr<std::vector<TableSum>> sums_ = std::make_shared<std::vector<TableSum>>();
};

}  // namespace kolo
