#include "runtime/engine/operation.h"

#include <fmt/format.h>

#include "fusion/gradient.h"

namespace kolo {

std::string Operation::signature() const {
  const std::size_t shape[] = {buffer.count};
  const char* const place = buffer.memory == MemoryKind::kDevice ? " on device"
                            : input != nullptr                   ? " out of place"
                                                                 : "";
  switch (kind) {
    case OperationKind::kAllReduce:
      return fmt::format("'{}': all_reduce {} {}{}", name, describe_shape(buffer.dtype, shape),
                         to_string(op), place);
    case OperationKind::kBroadcast:
      return fmt::format("'{}': broadcast {} from rank {}{}", name,
                         describe_shape(buffer.dtype, shape), root, place);
    case OperationKind::kBarrier:
      return fmt::format("'{}': barrier", name);
    case OperationKind::kClose:
      return "the end of the job";
  }
  return {};
}

OperationShape OperationShape::of(const Operation& operation) {
  return {.kind = operation.kind,
          .count = operation.buffer.count,
          .dtype = operation.buffer.dtype,
          .memory = operation.buffer.memory,
          .out_of_place = operation.input != nullptr,
          .op = operation.op,
          .root = operation.root};
}

int OperationTopic::waiters() const {
  int count = 0;
  for (const auto& operation : queue_) count += operation->ticket->waiters();
  return count;
}

OperationTopic::Need OperationTopic::need() const {
  if (queue_.empty() || proposal_ || arrived_ || is_held_) return Need::kNothing;
  return bucket_ && !is_rejected_ && shape_ == OperationShape::of(head()) ? Need::kArrival
                                                                          : Need::kProposal;
}

void OperationTopic::proposed(const Topic& topic) { proposal_ = topic; }

void OperationTopic::accepted(std::optional<BucketId> bucket, std::shared_ptr<Rebindable> packer) {
  proposal_.reset();
  shape_ = OperationShape::of(head());
  bucket_ = bucket;
  is_rejected_ = false;
  packer_ = std::move(packer);
}

void OperationTopic::rejected(const Error& error) noexcept {
  proposal_.reset();
  take_head()->ticket->fail(error);
}

void OperationTopic::bucket_failed(const Error& error) noexcept {
  is_rejected_ = true;
  if (std::exchange(arrived_, false)) take_head()->ticket->fail(error);
}

void OperationTopic::arrived() {
  arrived_ = true;
  if (packer_) packer_->rebind(0, head().buffer.data, head().input);
}

std::shared_ptr<Operation> OperationTopic::take_head() noexcept {
  std::shared_ptr<Operation> head = std::move(queue_.front());
  queue_.pop_front();
  return head;
}

void OperationTopic::fail_all(const Error& error) noexcept {
  proposal_.reset();
  while (!queue_.empty()) take_head()->ticket->fail(error);
}

void OperationTopic::bucket_finished(std::size_t) {
  arrived_ = false;
  complete_head();
}

}  // namespace kolo
