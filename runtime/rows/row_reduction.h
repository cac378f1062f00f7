#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/base/aligned_memory.h"
#include "runtime/api/row_sums.h"
#include "runtime/engine/operation_calls.h"
#include "runtime/engine/operation_pool.h"
#include "runtime/plan/bucket_plan.h"
#include "runtime/rows/row_order.h"
#include "runtime/rows/row_owners.h"
#include "runtime/sequence/call_sequence.h"

namespace kolo {

/// Aligned bytes that grow and are used again. Their contents are lost when they grow.
class RowBytes {
 public:
  std::byte* resize(std::size_t bytes) {
    if (bytes > capacity_) {
      memory_ = nullptr;
      memory_ = allocate_aligned(bytes);
      capacity_ = bytes;
    }
    return memory_.get();
  }
  std::byte* data() const { return memory_.get(); }

 private:
  AlignedMemory memory_;
  std::size_t capacity_ = 0;
};

/// The memory of a row-sparse all-reduce. Shared with its operations, because one that has timed
/// out is still under way.
struct RowMemory {
  std::vector<std::int64_t> description, descriptions;  ///< This rank's, and those of all.
  RowOrder own;                                         ///< This rank's rows.
  RowBytes own_sums;  ///< Unless it has each row once, in order, and scales none.
  std::vector<std::size_t> own_counts, counts;  ///< By owner; of all ranks, by pair.
  std::vector<std::int64_t> received;           ///< Indices that this rank owns.
  RowBytes received_rows;
  RowOrder owned;
  std::int64_t owned_count = 0;
  std::vector<std::int64_t> owned_counts;  ///< By owner.
  std::vector<std::int64_t> indices;       ///< Of the result.
  RowBytes rows, table;
};

/// One row-sparse all-reduce:
///
///   all_gather   of how many rows each rank has and where they lie; agrees on the call
///   all_gather   of how many rows each rank has for each owner; decides about the exchange
///   either  all_to_all   of rows to their owners, which sum them in the order of ranks
///           all_gather   of how many distinct rows each owner has
///           all_gather   of these
///   or      all_reduce   of the table
///
/// Threads: see `CallSequence`. Errors: as `Group::sparse_all_reduce`.
class RowReduction final : public CallSequence {
 public:
  /// Adds up this rank's rows. The inputs of plans, and `rows`, outlive it until it is over; the
  /// memory of `result`, which is empty then, is used again. Errors: UsageError.
  RowReduction(const PlanInputs& inputs, std::string_view name, const RowTable& table,
               const RowOptions& options, std::span<const std::int64_t> indices, const void* rows,
               RowSums& result);

  std::string subject() const override { return name_; }
  Stage next() override;
  /// The result, once. Before: it is over, without an error.
  RowSums take() { return std::move(result_); }

 private:
  enum class Phase : std::uint8_t {
    kBegin,     ///< Nothing was agreed on.
    kAgreed,    ///< Numbers of rows and their places are known.
    kCounted,   ///< So are those for each owner.
    kSent,      ///< Owners have rows.
    kSummed,    ///< Numbers of sums are known.
    kGathered,  ///< All have the sums.
    kReduced,   ///< All have the table.
    kOver,
  };

  std::size_t row_bytes() const { return table_.width * size_of(table_.dtype); }
  Stage agree();
  Stage count_rows();
  bool exchanges_rows() const;
  Stage send_rows();
  Stage sum_up();
  Stage gather_sums();
  void finish_rows();
  Stage exchange_table();
  void finish_table();
  BufferView cleared_table();
  Stage all_gather_counts(std::string_view step, const void* mine, void* all, std::size_t each);
  std::shared_ptr<Operation> step(std::shared_ptr<Operation> operation) const;
  std::string step_name(std::string_view step) const;

  const PlanInputs inputs_;
  const std::string name_;
  const RowTable table_;
  const RowOptions options_;
  const std::size_t ranks_;
  OperationPool pool_;
  const OperationCalls calls_;
  Phase phase_ = Phase::kBegin;
  std::shared_ptr<RowMemory> memory_;
  const std::byte* rows_ = nullptr;  // this rank's, scaled, once each, in the order of indices
  std::optional<RowOwners> owners_;
  BufferView sums_;  // of all owners
  RowSums result_;
};

}  // namespace kolo
