#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/aligned_memory.h"
#include "runtime/api/row_sums.h"
#include "runtime/api/runtime_state.h"
#include "runtime/rows/row_order.h"
#include "runtime/rows/row_owners.h"

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
  RowBytes own_sums;                                    ///< Unless it has each row once, in order.
  std::vector<std::size_t> own_counts, counts;          ///< By owner; of all ranks, by pair.
  std::vector<std::int64_t> received;                   ///< Indices that this rank owns.
  RowBytes received_rows;
  RowOrder owned;
  std::int64_t owned_count = 0;
  std::vector<std::int64_t> owned_counts;  ///< By owner.
  std::vector<std::int64_t> indices;       ///< Of the result.
  RowBytes rows, table;
};

/// One row-sparse all-reduce, as a sequence of operations:
///
///   all_gather   of how many rows each rank has and where they lie; agrees on the call
///   all_gather   of how many rows each rank has for each owner; decides about the exchange
///   either  all_to_all   of rows to their owners, which sum them in the order of ranks
///           all_gather   of how many distinct rows each owner has
///           all_gather   of these
///   or      all_reduce   of the table
///
/// Threads: the caller's. Errors: as `Group::sparse_all_reduce`.
class RowReduction {
 public:
  /// Refers to its arguments. Errors: UsageError.
  RowReduction(MemberState& state, std::string_view name, const RowTable& table,
               const RowOptions& options);

  void run(std::span<const std::int64_t> indices, const void* rows, RowSums& result);

 private:
  std::size_t row_bytes() const { return table_.width * size_of(table_.dtype); }
  std::string call() const;
  RowOwners agree();
  void count_rows(const RowOwners& owners);
  bool exchanges_rows(const RowOwners& owners) const;
  void exchange_rows(RowSums& result);
  void exchange_table(RowSums& result);
  BufferView cleared_table();
  void all_gather_counts(std::string_view step, const void* mine, void* all, std::size_t each);
  std::shared_ptr<Operation> step(std::shared_ptr<Operation> operation) const;
  std::string step_name(std::string_view step) const;

  MemberState& state_;
  const std::string_view name_;
  const RowTable& table_;
  const RowOptions& options_;
  const std::size_t ranks_;
  std::shared_ptr<RowMemory> memory_;
  const std::byte* rows_ = nullptr;  // this rank's, once each, in the order of their indices
};

}  // namespace kolo
