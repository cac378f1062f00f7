#include "runtime/engine/closing.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "comm/base/text.h"

namespace kolo {

void Closing::submit(std::shared_ptr<Operation> close) {
  calls_.push_back(std::move(close));
  if (stage_ == Stage::kOpen) stage_ = Stage::kBegun;
}

void Closing::tell() {
  stage_ = Stage::kTold;
  coordinator_.close();
}

void Closing::propose() {
  stage_ = Stage::kProposed;
  proposal_ = coordinator_.propose_close(*this);
}

void Closing::decline_invitations() {
  for (Invitation& invitation : coordinator_.take_invitations()) {
    invitations_.push_back(std::move(invitation));
  }
  std::erase_if(invitations_, [&](const Invitation& invitation) {
    const ProposalKey& key = invitation.key;
    const bool is_bucket = is_bucket_hash(key.hash);
    const std::uint64_t uses = is_bucket ? runner_.uses_until(key) : 0;
    // Other ranks may still invite this rank to a use that has finished here.
    if (is_bucket ? uses == 0 : coordinator_.is_decided(key)) return true;
    if (comes_to(key)) return false;
    const std::string_view text = is_bucket ? runner_.text_of(key) : invitation.text;
    // The other ranks may already be past the first use that this rank will not begin.
    const ProposalKey first{key.hash, is_bucket ? key.round + 1 - uses : key.round};
    coordinator_.decline(
        first, {.code = ErrorCode::kMismatch,
                .rank = rank_,
                .verb = std::string(Coordinator::kCloseVerb),
                .bucket = std::string(tensor_of(text)),
                .what = fmt::format("rank {} has closed and takes no part in {}", rank_, text)});
    return true;
  });
}

/// Returns whether this rank has begun the operation, or earlier uses of its name.
bool Closing::comes_to(const ProposalKey& key) {
  if (coordinator_.is_pending(key.hash)) return true;
  return is_bucket_hash(key.hash) ? runner_.is_in_use(key) : !operations_.is_idle(key.hash);
}

bool Closing::accept(const Frame& decision) {
  if (!proposal_ || *proposal_ != decision.key) return false;
  stage_ = Stage::kClosed;
  for (const auto& call : std::exchange(calls_, {})) call->ticket->complete();
  return true;
}

/// The end may be rejected before this rank has proposed it; `kTold` is enough.
bool Closing::reject(const ProposalKey& key, const Error& error) {
  if (stage_ < Stage::kTold || !Coordinator::is_close(key)) return false;
  stage_ = Stage::kOpen;
  invitations_.clear();
  fail_all(error);
  return true;
}

void Closing::fail_all(const Error& error) noexcept {
  proposal_.reset();
  for (const auto& call : std::exchange(calls_, {})) call->ticket->fail(error);
}

int Closing::waiters() const {
  int count = 0;
  for (const auto& call : calls_) count += call->ticket->waiters();
  return count;
}

bool Closing::is_watched() const {
  return std::ranges::any_of(calls_, [](const auto& call) { return call->ticket->is_watched(); });
}

}  // namespace kolo
