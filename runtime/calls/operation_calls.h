#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/base/buffer_view.h"
#include "comm/base/reduction.h"
#include "comm/base/spin_lock.h"
#include "comm/device/device.h"
#include "runtime/calls/operation.h"

namespace kolo {

/// A pool of finished operations, so that a blocking call allocates nothing. Threads: any.
class OperationPool {
 public:
  /// Returns an operation of this kind and name, with defaults in all other fields.
  std::shared_ptr<Operation> take(OperationKind kind, std::string_view name) {
    std::shared_ptr<Operation> operation = take_unused();
    if (!operation) operation = std::make_shared<Operation>();
    operation->kind = kind;
    operation->name = name;
    return operation;
  }

  /// Takes a finished operation back. Precondition: its ticket is done, and no other object uses
  /// it.
  void give_back(std::shared_ptr<Operation> operation) {
    operation->ticket->reset();
    operation->dtype = DType::kFloat32;
    operation->memory = MemoryKind::kHost;
    operation->tensors.clear();
    operation->out_of_place = false;
    operation->counts.clear();
    operation->op = ReduceOp::kSum;
    operation->scales = {};
    operation->wire.reset();
    operation->root = 0;
    operation->ready.reset();
    operation->rows.reset();
    operation->space = NameSpace::kUser;
    operation->kept.reset();
    const SpinGuard lock(lock_);
    if (unused_.size() < kMost) unused_.push_back(std::move(operation));
  }

 private:
  /// Most unused operations in the pool: as many as threads are likely to call at the same time.
  static constexpr std::size_t kMost = 16;

  /// Returns null if the pool has no unused operation.
  std::shared_ptr<Operation> take_unused() {
    const SpinGuard lock(lock_);
    if (unused_.empty()) return nullptr;
    std::shared_ptr<Operation> operation = std::move(unused_.back());
    unused_.pop_back();
    return operation;
  }

  SpinLock lock_;
  std::vector<std::shared_ptr<Operation>> unused_ KOLO_GUARDED_BY(lock_);
};

/// Makes operations from the calls of users' threads, and checks the arguments. `Group` documents
/// the contracts. Threads: any. Errors: UsageError.
class OperationCalls {
 public:
  /// `pool` and `device` must outlive this object. If `device` is not null, buffers in device
  /// memory must be in its memory.
  OperationCalls(OperationPool& pool, int rank, int world_size, Device* device = nullptr)
      : pool_(pool), rank_(rank), world_size_(world_size), device_(device) {}

  using New = std::shared_ptr<Operation>;

  int rank() const { return rank_; }

  /// Returns an operation of this kind. Kinds without root or reduction ignore that argument.
  New make(OperationKind kind, std::string_view name, const Tensors& tensors, int root = 0,
           const Reduction& reduction = ReduceOp::kSum) const;
  /// Returns an operation without tensors; `kind` is kBarrier or kClose.
  New plain(OperationKind kind) const;

 private:
  OperationPool& pool_;
  const int rank_;
  const int world_size_;
  Device* const device_;
};

}  // namespace kolo
