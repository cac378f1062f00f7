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
#include "runtime/calls/row_sums/row_sums.h"
#include "runtime/calls/row_sums/table_sum.h"

namespace kolo {

/// A row-sparse all-reduce of one table or several, which share all operations:
///
///   all_gather   of the number and distribution of each rank's rows; agrees on the call
///   all_gather   of the number of each rank's rows for each owner; decides about each table
///   either  all_to_all   of rows to their owners, which sum them in rank order
///           all_gather   of the number of distinct rows of each owner
///           all_gather   of the sums
///   or      all_reduce   of the table
///
/// Device libraries have no operation on several tensors, so rows in device memory have separate
/// operations for each table; all other data is in host memory.
///
/// Threads: see `CompositeOp`. Errors: as `Group::sparse_all_reduce`.
class RowReduction final : public CompositeOp {
 public:
  /// Adds up this rank's rows. The plan inputs, the rows of `tables` and the device must stay valid
  /// until the call is over. `results` has one result per table; they are emptied, and their memory
  /// is reused. Errors: UsageError; KoloError(kResources).
  RowReduction(const PlanInputs& inputs, std::string_view name, Span<const TableRows> tables,
               const RowOptions& options, Span<RowSums> results, const RowDevice& device = {});

  std::string subject() const override { return name_; }
  Stage next() override;
  bool is_settled() const override;
  std::size_t tables() const { return sums_->size(); }
  /// Returns one result per table; call it once. Precondition: the call is over without an error.
  std::vector<RowSums> take();

 private:
  enum class Phase : std::uint8_t {
    kBegin,     ///< No operation is done.
    kAgreed,    ///< Number and distribution of each rank's rows are known.
    kCounted,   ///< The number of each rank's rows for each owner is known.
    kSent,      ///< Owners have received their rows.
    kSummed,    ///< The number of sums of each owner is known.
    kGathered,  ///< All ranks have the sums, and the tables that were exchanged.
    kOver,
  };

  const RowTable& any_table() const { return call_.tables.front(); }
  Stage agree();
  Stage count();
  Stage exchange();
  Stage sum_up();
  Stage share();
  /// The rows of several tables, and for each table the event after which its rows are ready.
  struct Rows {
    std::vector<Tensor> each;
    std::vector<std::shared_ptr<const Event>> ready;

    void add(const Tensor& tensor, std::shared_ptr<const Event> behind);
  };
  /// Appends operations on `rows` to the stage; appends nothing if `rows` is empty.
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
  // One sum per table, shared with operations, which may still use them after a timeout.
  const std::shared_ptr<std::vector<TableSum>> sums_ = std::make_shared<std::vector<TableSum>>();
};

}  // namespace kolo
