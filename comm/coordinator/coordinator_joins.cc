// Part of Coordinator: joining and closing.

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "comm/base/log.h"
#include "comm/coordinator/coordinator.h"

namespace kolo {

ProposalKey Coordinator::join(const Waitable& waited) {
  // This rank will not reach the uses that other ranks have given up, so they count as decided.
  for (const auto& [hash, error] : refused_) ++rounds_[hash];
  refused_.clear();
  flush();
  const int rank = transport_.rank();
  announcements_.join(rank);
  pass_on_invitations();
  const std::uint64_t known = announcements_.joined().size() - announcements_.closed().size();
  return vote(kJoinName, known << 32 | static_cast<std::uint32_t>(rank), "join", waited);
}

void Coordinator::close() {
  if (refused_.contains(close_hash_)) return;  // other ranks have given up this attempt
  flush();
  announcements_.close(transport_.rank(), close_key().round);
  pass_on_invitations();
}

/// Whether joined ranks are invited to the proposal: not to votes, which they make themselves, and
/// not to the proposal to close.
bool Coordinator::is_open_to_all(const Pending& pending) const {
  const bool is_vote = pending.sequence == 0 && !is_bucket_hash(pending.key.hash);
  return !is_vote && pending.key.hash != close_hash_;
}

bool Coordinator::is_pending(std::uint64_t hash) const {
  const auto proposal = proposals_.lower_bound({hash, 0});
  const auto has_hash = [&](const Pending& pending) { return pending.key.hash == hash; };
  return (proposal != proposals_.end() && proposal->first.hash == hash) ||
         std::ranges::any_of(arrivals_, has_hash) || std::ranges::any_of(begun_, has_hash) ||
         std::ranges::any_of(
             agreed_, [&](const Agreed& agreed) { return bucket_hash(agreed.bucket) == hash; });
}

ProposalKey Coordinator::propose_close(const Waitable& waited) {
  return propose(kCloseName, 0, std::string(close_text()), waited);
}

ProposalKey Coordinator::next_key(std::uint64_t hash) const {
  const auto decided = rounds_.find(hash);
  return {hash, decided == rounds_.end() ? 0 : decided->second};
}

void Coordinator::end_join() {
  announcements_.end();
  invites_ = false;
}

std::vector<Invitation> Coordinator::take_invitations() {
  std::vector<Invitation> invitations = announcements_.take_invitations();
  std::erase_if(invitations, [&](const Invitation& invitation) {
    const ProposalKey& key = invitation.key;
    return !is_bucket_hash(key.hash) && is_decided(key);
  });
  return invitations;
}

void Coordinator::decline(const ProposalKey& key, Error error) {
  flush();
  announcements_.decline(key, in_group(std::move(error)));
  pass_on_invitations();
}

/// Sends new invitations and rejects declined proposals. Before: `flush()`.
void Coordinator::pass_on_invitations() {
  const bool invites = announcements_.are_wanted();
  if (invites && !invites_) invite_to_everything();
  invites_ = invites;
  for (const OutgoingFrame& outgoing : announcements_.take_outgoing()) {
    send(outgoing.peer, outgoing.frame);
  }
  for (JoinAnnouncements::Declined& declined : announcements_.take_declined()) {
    // Failures because of closed ranks are all alike and logged once.
    if (!is_by_closed(declined.error) || !std::exchange(has_reported_closed_, true)) {
      log::report(declined.error);
    }
    negotiator_.reject({declined.key}, declined.error);
    flush();
  }
}

Invitation Coordinator::invitation_to(const Pending& pending) {
  if (is_bucket_hash(pending.key.hash)) return {.key = pending.key};
  return {.key = pending.key,
          .text = std::string(pending.text.substr(0, pending.text.find('\n'))),
          .terms = pending.waited->terms()};
}

void Coordinator::invite(const Pending& pending) {
  const Invitation invitation = invitation_to(pending);
  flush();  // may forget `pending`
  announcements_.invite(invitation);
  pass_on_invitations();
}

/// Invites to all pending operations, and to ended bucket iterations, which a joined rank may have
/// missed. Iterations of a bucket come before a new agreement on its name.
void Coordinator::invite_to_everything() {
  std::vector<ProposalKey> keys;
  for (std::size_t bucket = 0; bucket < ended_.size(); ++bucket) {
    if (ended_[bucket] == 0) continue;
    keys.push_back({bucket_hash(static_cast<BucketId>(bucket)), ended_[bucket] - 1});
  }
  for (const Pending& pending : arrivals_) keys.push_back(pending.key);
  for (const Pending& pending : begun_) keys.push_back(pending.key);
  announcements_.invite(keys);
  for (const auto& [key, proposal] : proposals_) {
    if (is_open_to_all(proposal.pending)) announcements_.invite(invitation_to(proposal.pending));
  }
}

}  // namespace kolo
