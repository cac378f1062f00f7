#include "comm/schedule/late_group.h"

#include <utility>

namespace kolo {
namespace {

/// A message beside those of a schedule and the turns of its launches.
constexpr std::uint32_t kInvitation = (std::uint32_t{1} << kTagOrdinalBits) - 1;

}  // namespace

void LateGroup::expect(BucketId bucket, std::uint64_t iteration) {
  if (state_ != State::kIdle) return;
  state_ = State::kExpected;
  tag_ = {.source = 0,
          .bucket = bucket,
          .iteration = static_cast<std::uint32_t>(iteration),
          .ordinal = kInvitation};
  if (is_first()) return;
  invitation_.resize(connector_.invitation_bytes());
  messages_.resize(1);
  transport_.irecv(0, tag_, invitation_, messages_.front());
}

void LateGroup::start() {
  if (std::exchange(is_started_, true) || !is_first() || state_ != State::kExpected) return;
  invitation_ = connector_.invite();
  messages_.resize(static_cast<std::size_t>(transport_.world_size()) - 1);
  for (int peer = 1; peer < transport_.world_size(); ++peer) {
    transport_.isend(peer, tag_, invitation_, messages_[static_cast<std::size_t>(peer) - 1]);
  }
}

std::unique_ptr<LocalGroup> LateGroup::poll() {
  if (state_ == State::kExpected) {
    const bool is_here = is_first() || messages_.front().state == Completion::State::kDone;
    if (!is_here) return nullptr;
    connecting_ = connector_.connect(invitation_, transport_.rank(), transport_.world_size());
    state_ = State::kConnecting;
  }
  if (state_ != State::kConnecting) return nullptr;
  std::unique_ptr<LocalGroup> group = connecting_->poll();
  if (group) {
    connecting_.reset();
    state_ = State::kOver;
  }
  return group;
}

void LateGroup::give_up() {
  connecting_.reset();
  state_ = State::kOver;
}

}  // namespace kolo
