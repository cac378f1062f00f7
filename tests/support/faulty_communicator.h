#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "comm/device/device_communicator.h"
#include "tests/support/device/host_stream.h"

namespace kolo::test {

/// The faults of one rank's group. Its calls are numbered from 0.
struct FaultPlan {
  /// Number of polls of its stream by which each collective is delayed.
  int delay_polls = 0;
  /// From this call on the rank is frozen: its data does not reach the peers, and its streams do
  /// not advance until it aborts.
  std::optional<std::uint64_t> freeze_at = {};
  /// From this call on the library also reports a failure.
  std::optional<std::uint64_t> fail_at = {};
  /// From this call on the library refuses calls: it enqueues nothing and reports a failure.
  std::optional<std::uint64_t> refuse_at = {};
  /// Whether an abort misses its deadline. Enqueued work then stays until the group is destroyed.
  bool abort_hangs = false;
};

/// A group on host streams whose calls fail as planned, to test timeouts, failures and aborts.
class FaultyCommunicator final : public DeviceCommunicator {
 public:
  FaultyCommunicator(std::unique_ptr<DeviceCommunicator> group, FaultPlan plan)
      : group_(std::move(group)), plan_(plan) {}
  ~FaultyCommunicator() override { *thawed_ = true; }

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  std::string describe() const override { return group_->describe() + ", with faults"; }
  DeviceMemory allocate(std::size_t bytes) override {
    ++allocations_;
    return group_->allocate(bytes);
  }

  void reduce_scatter(Stream& stream, const void* whole, void* part, std::size_t part_count,
                      DType dtype, ReduceOp op) override {
    if (passes(stream)) group_->reduce_scatter(stream, whole, part, part_count, dtype, op);
  }
  void all_gather(Stream& stream, const void* part, void* whole, std::size_t part_count,
                  DType dtype) override {
    if (passes(stream)) group_->all_gather(stream, part, whole, part_count, dtype);
  }
  void reduce_parts(Stream& stream, std::span<const GroupTensor> tensors, DType dtype,
                    ReduceOp op) override {
    if (passes(stream)) group_->reduce_parts(stream, tensors, dtype, op);
  }
  void gather_parts(Stream& stream, std::span<const GroupTensor> tensors, DType dtype) override {
    if (passes(stream)) group_->gather_parts(stream, tensors, dtype);
  }
  void exchange(Stream& stream, std::span<const GroupPart> sent,
                std::span<const GroupPart> received, DType dtype) override {
    if (passes(stream)) group_->exchange(stream, sent, received, dtype);
  }
  void all_reduce(Stream& stream, const void* source, void* target, std::size_t count, DType dtype,
                  ReduceOp op) override {
    if (passes(stream)) group_->all_reduce(stream, source, target, count, dtype, op);
  }

  bool is_launching() override { return group_->is_launching(); }

  std::optional<Error> async_error() override {
    if (!has_failed()) return group_->async_error();
    return Error{.code = ErrorCode::kInternal, .rank = rank(), .what = "a planned failure"};
  }

  bool abort(std::chrono::milliseconds within) override {
    if (plan_.abort_hangs) return false;
    *thawed_ = true;
    return group_->abort(within);
  }

  CommunicatorState finalize() override {
    if (has_failed()) {
      abort({});
      return CommunicatorState::kAborted;
    }
    return has_come(plan_.freeze_at) ? CommunicatorState::kFinalizing : group_->finalize();
  }

  std::uint64_t calls() const { return calls_; }
  std::uint64_t allocations() const { return allocations_; }

 private:
  bool has_come(std::optional<std::uint64_t> call) const { return call && calls_ > *call; }
  bool has_failed() const { return has_come(plan_.fail_at) || has_come(plan_.refuse_at); }

  /// Counts a call; returns whether the group executes it.
  bool passes(Stream& stream) {
    ++calls_;
    if (has_come(plan_.refuse_at)) return false;
    if (has_come(plan_.freeze_at) || has_come(plan_.fail_at)) {
      as_host(stream).enqueue([thawed = thawed_] { return thawed->load(); });
      return false;
    }
    if (plan_.delay_polls > 0) {
      as_host(stream).enqueue([left = plan_.delay_polls]() mutable { return left-- == 0; });
    }
    return true;
  }

  const std::unique_ptr<DeviceCommunicator> group_;
  const FaultPlan plan_;
  std::uint64_t calls_ = 0, allocations_ = 0;
  /// Shared with the operations, because they may outlive the group.
  const std::shared_ptr<std::atomic<bool>> thawed_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace kolo::test
