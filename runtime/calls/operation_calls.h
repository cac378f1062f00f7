#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "comm/base/buffer_view.h"
#include "comm/base/reduction.h"
#include "runtime/calls/operation.h"
#include "runtime/calls/operation_pool.h"

namespace kolo {

/// Makes operations of the calls of a user's thread, whose arguments it checks. The contracts are
/// those of `Runtime`. Threads: any. Errors: UsageError.
class OperationCalls {
 public:
  /// `pool` outlives it.
  OperationCalls(OperationPool& pool, int rank, int world_size)
      : pool_(pool), rank_(rank), world_size_(world_size) {}

  using New = std::shared_ptr<Operation>;
  using Counts = std::span<const std::size_t>;

  int rank() const { return rank_; }

  New all_reduce(std::string_view name, const BufferView& buffer, const Reduction& reduction) const;
  New all_reduce(std::string_view name, const void* input, const BufferView& result,
                 const Reduction& reduction) const;
  New broadcast(std::string_view name, const BufferView& buffer, int root) const;
  New broadcast(std::string_view name, const void* input, const BufferView& result, int root) const;
  New reduce(std::string_view name, const void* input, const BufferView& result, int root,
             const Reduction& reduction) const;
  New reduce_scatter(std::string_view name, const void* input, const BufferView& result,
                     const Reduction& reduction, Counts counts) const;
  New all_gather(std::string_view name, const void* input, const BufferView& result,
                 Counts counts) const;
  New gather(std::string_view name, const BufferView& input, void* result, int root,
             Counts counts) const;
  New scatter(std::string_view name, const void* input, const BufferView& result, int root,
              Counts counts) const;
  New all_to_all(std::string_view name, const void* input, const BufferView& result,
                 Counts counts) const;
  /// One operation of this kind on several tensors. `root` and `reduction` count where it has them.
  New grouped(OperationKind kind, std::string_view name, const Tensors& tensors, int root = 0,
              const Reduction& reduction = ReduceOp::kSum) const;
  /// kBarrier or kClose.
  New plain(OperationKind kind) const;

 private:
  void check_root(std::string_view name, int root) const;
  void find_own_parts(Operation& operation, std::span<const TensorBuffers> given) const;

  OperationPool& pool_;
  const int rank_;
  const int world_size_;
};

}  // namespace kolo
