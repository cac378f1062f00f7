#include "comm/transport/message_matcher.h"

#include <algorithm>
#include <string>

namespace kolo {

const UnexpectedMessage* MessageMatcher::find_stray(const AbandonedRuns& abandoned) const {
  for (const auto& messages : unexpected_) {
    for (const UnexpectedMessage& message : messages) {
      if (!abandoned.covers(unpack(message.tag))) return &message;
    }
  }
  return nullptr;
}

bool MessageMatcher::cancel(Completion& receive) noexcept {
  for (auto& receives : posted_) {
    const auto posted = std::ranges::find(receives, &receive, &PostedReceive::done);
    if (posted == receives.end()) continue;
    receives.erase(posted);
    receive.state = Completion::State::kIdle;
    return true;
  }
  return false;
}

void MessageMatcher::cancel() noexcept {
  for (auto& receives : posted_) {
    for (const PostedReceive& receive : receives) receive.done->state = Completion::State::kIdle;
    receives.clear();
  }
  for (Completion* done : abandoned_) done->state = Completion::State::kIdle;
  abandoned_.clear();
  for (auto& messages : unexpected_) messages.clear();
}

Error message_too_long(int rank, int peer, std::size_t bytes, std::size_t capacity) {
  return Error{.code = ErrorCode::kInternal,
               .rank = rank,
               .peer = peer,
               .verb = "run",
               .what = "message of " + std::to_string(bytes) +
                       " bytes does not fit its buffer of " + std::to_string(capacity) + " bytes"};
}

Error stray_message(int rank, const Tag& tag, std::size_t bytes) {
  return Error{.code = ErrorCode::kInternal,
               .rank = rank,
               .peer = static_cast<int>(tag.source),
               .verb = "run",
               .what = "no receive was posted for a message of " + std::to_string(bytes) +
                       " bytes: bucket " + std::to_string(tag.bucket) + ", iteration " +
                       std::to_string(tag.iteration) + ", number " + std::to_string(tag.ordinal)};
}

}  // namespace kolo
