#pragma once

#include <memory>
#include <string_view>

#include "comm/base/buffer_view.h"
#include "comm/base/reduction.h"
#include "runtime/calls/operation.h"
#include "runtime/calls/operation_pool.h"

namespace kolo {

/// Makes operations of the calls of a user's thread, whose arguments it checks. The contracts are
/// those of `Group`. Threads: any. Errors: UsageError.
class OperationCalls {
 public:
  /// `pool` outlives it.
  OperationCalls(OperationPool& pool, int rank, int world_size)
      : pool_(pool), rank_(rank), world_size_(world_size) {}

  using New = std::shared_ptr<Operation>;

  int rank() const { return rank_; }

  /// The operation of this kind on these tensors. `root` and `reduction` count where it has them.
  New make(OperationKind kind, std::string_view name, const Tensors& tensors, int root = 0,
           const Reduction& reduction = ReduceOp::kSum) const;
  /// kBarrier or kClose.
  New plain(OperationKind kind) const;

 private:
  OperationPool& pool_;
  const int rank_;
  const int world_size_;
};

}  // namespace kolo
