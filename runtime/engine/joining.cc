#include "runtime/engine/joining.h"

#include <utility>

#include <fmt/format.h>

#include "comm/base/text.h"
#include "runtime/calls/stand_in.h"

namespace kolo {

void Joining::submit(const std::shared_ptr<JoinTicket>& ticket) {
  ticket_ = ticket;
  coordinator_.acts().did("joined");
}

bool Joining::poll() {
  if (!vote_) return begin();
  const bool moved = take_invitations();
  take_parts();
  // While ranks are missing, no rank may close. Once all have joined, each rank may.
  if (!last_ && !coordinator_.closed().empty()) {
    decline(coordinator_.close_key(), coordinator_.close_text(), "all ranks must join first");
  }
  const bool is_idle = gradients_.move_stand_ins() && wanted_.empty();
  if (!last_ || !is_idle || !operations_.is_idle()) return moved;
  const int last = *last_;
  const std::shared_ptr<JoinTicket> ticket = leave();
  ticket->last = last;
  ticket->complete();
  return true;
}

/// Begins the vote once this rank's own operations are over, because their buffers hold data.
bool Joining::begin() {
  if (const auto set = gradients_.marked()) {
    leave()->fail(coordinator_.in_group(
        {.code = ErrorCode::kUsage,
         .bucket = *set,
         .what = "join() in the middle of an iteration of this gradient set; mark all of its "
                 "gradients and call wait() first"}));
    return true;
  }
  if (!operations_.is_idle() || !gradients_.is_idle()) return false;
  vote_ = coordinator_.join(nobody_);
  return true;
}

bool Joining::take_invitations() {
  const std::vector<Invitation> invitations = coordinator_.take_invitations();
  for (const Invitation& invitation : invitations) {
    ticket_->parts.fetch_add(1, std::memory_order_relaxed);
    if (is_bucket_hash(invitation.key.hash)) {
      wanted_.push_back(invitation.key);
      continue;
    }
    const auto terms = operation_terms_from(invitation.terms);
    const std::string_view obstacle =
        terms ? operations_.stand_in(*terms) : "every rank has to call it itself";
    if (!obstacle.empty()) decline(invitation.key, invitation.text, obstacle);
  }
  return !invitations.empty();
}

void Joining::take_parts() {
  std::erase_if(wanted_, [&](const ProposalKey& key) {
    const std::uint64_t uses = runner_.uses_until(key);
    if (uses == 0) return true;
    const std::string_view obstacle = runner_.stand_in(key, uses);
    if (!obstacle.empty()) decline(key, runner_.text_of(key), obstacle);
    return !obstacle.empty();
  });
}

void Joining::decline(const ProposalKey& key, std::string_view text, std::string_view why) {
  coordinator_.decline(key, {.code = ErrorCode::kMismatch,
                             .rank = rank_,
                             .verb = "join",
                             .bucket = std::string(tensor_of(text)),
                             .what = fmt::format("rank {} has joined and takes no part in {}: {}",
                                                 rank_, text, why)});
}

bool Joining::accept(const Frame& decision) {
  if (!vote_ || *vote_ != decision.key) return false;
  last_ = Coordinator::last_to_join(decision);
  return true;
}

bool Joining::reject(const ProposalKey& key, const Error& error) {
  if (!vote_ || *vote_ != key) return false;
  coordinator_.fail(error);  // Ranks would differ about whether they have joined.
  return true;
}

void Joining::fail_all(const Error& error) noexcept {
  if (ticket_) leave()->fail(error);
}

std::shared_ptr<JoinTicket> Joining::leave() {
  vote_.reset();
  last_.reset();
  wanted_.clear();
  return std::exchange(ticket_, nullptr);
}

}  // namespace kolo
