#include "runtime/calls/named_op_queue.h"

#include <algorithm>

#include "runtime/calls/operations.h"

namespace kolo {
namespace {

OperationTerms terms_of(const Operation& operation) {
  return {.name = operation.name, .space = operation.space, .shape = OperationShape::of(operation)};
}

}  // namespace

int NamedOpQueue::waiters() const {
  int count = 0;
  for (const auto& operation : queue_) count += operation->ticket->waiters();
  return count;
}

bool NamedOpQueue::is_watched() const {
  return std::ranges::any_of(queue_,
                             [](const auto& operation) { return operation->ticket->is_watched(); });
}

NamedOpQueue::Need NamedOpQueue::need() const {
  if (queue_.empty() || proposal_ || arrived_ || is_held_) return Need::kNothing;
  return bucket_ && !is_rejected_ && made_for_.shape.fits(head()) ? Need::kArrival
                                                                  : Need::kProposal;
}

void NamedOpQueue::proposed(const ProposalKey& key) { proposal_ = key; }

void NamedOpQueue::accepted(BucketId bucket, BufferBinding tensors) {
  proposal_.reset();
  made_for_ = terms_of(head());
  bucket_ = bucket;
  is_rejected_ = false;
  tensors_ = std::move(tensors);
}

void NamedOpQueue::rejected(const Error& error) noexcept {
  proposal_.reset();
  take_head()->ticket->fail(error);
}

void NamedOpQueue::bucket_rejected(const Error& error) {
  is_rejected_ = true;
  if (std::exchange(arrived_, false)) take_head()->ticket->fail(error);
  all_.advance(*this);
}

void NamedOpQueue::arrived() {
  arrived_ = true;
  tensors_.bind(head());
}

std::shared_ptr<Operation> NamedOpQueue::take_head() noexcept {
  std::shared_ptr<Operation> head = std::move(queue_.front());
  queue_.pop_front();
  return head;
}

void NamedOpQueue::fail_all(const Error& error) noexcept {
  proposal_.reset();
  while (!queue_.empty()) take_head()->ticket->fail(error);
}

std::vector<std::byte> NamedOpQueue::terms() const { return to_bytes(terms_of(head())); }

/// A composite call itself submits its later steps, so steps need no stand-in.
std::string_view NamedOpQueue::stand_in(std::uint64_t uses) {
  if (made_for_.space == NameSpace::kStep) return {};
  while (queue_.size() < uses) {
    const std::string_view obstacle = all_.stand_in(made_for_);
    if (!obstacle.empty()) return obstacle;
  }
  return {};
}

void NamedOpQueue::bucket_enqueued(std::size_t) {
  if (arrived_) all_.enqueued(*this);
}

void NamedOpQueue::bucket_finished(std::size_t) {
  arrived_ = false;
  complete_head();
  all_.advance(*this);
}

}  // namespace kolo
