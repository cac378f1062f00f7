#include "runtime/calls/operation_topic.h"

#include <algorithm>

#include "runtime/calls/operations.h"

namespace kolo {
namespace {

OperationTerms terms_of(const Operation& operation) {
  return {.name = operation.name, .space = operation.space, .shape = OperationShape::of(operation)};
}

}  // namespace

int OperationTopic::waiters() const {
  int count = 0;
  for (const auto& operation : queue_) count += operation->ticket->waiters();
  return count;
}

bool OperationTopic::is_watched() const {
  return std::ranges::any_of(queue_,
                             [](const auto& operation) { return operation->ticket->is_watched(); });
}

OperationTopic::Need OperationTopic::need() const {
  if (queue_.empty() || proposal_ || arrived_ || is_held_) return Need::kNothing;
  return bucket_ && !is_rejected_ && made_for_.shape.fits(head()) ? Need::kArrival
                                                                  : Need::kProposal;
}

void OperationTopic::proposed(const Topic& topic) { proposal_ = topic; }

void OperationTopic::accepted(BucketId bucket, OperationTensors tensors) {
  proposal_.reset();
  made_for_ = terms_of(head());
  bucket_ = bucket;
  is_rejected_ = false;
  tensors_ = std::move(tensors);
}

void OperationTopic::rejected(const Error& error) noexcept {
  proposal_.reset();
  take_head()->ticket->fail(error);
}

void OperationTopic::bucket_rejected(const Error& error) {
  is_rejected_ = true;
  if (std::exchange(arrived_, false)) take_head()->ticket->fail(error);
  all_.advance(*this);
}

void OperationTopic::arrived() {
  arrived_ = true;
  tensors_.bind(head());
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

std::vector<std::byte> OperationTopic::terms() const { return to_bytes(terms_of(head())); }

/// The later steps of a call follow when the call gets to them.
std::string_view OperationTopic::stand_in(std::uint64_t uses) {
  if (made_for_.space == NameSpace::kStep) return {};
  while (queue_.size() < uses) {
    const std::string_view obstacle = all_.stand_in(made_for_);
    if (!obstacle.empty()) return obstacle;
  }
  return {};
}

void OperationTopic::bucket_finished(std::size_t) {
  arrived_ = false;
  complete_head();
  all_.advance(*this);
}

}  // namespace kolo
