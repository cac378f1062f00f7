// The coordinator while some ranks have joined or closed.

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "comm/base/log.h"
#include "comm/coordinator/coordinator.h"

namespace kolo {

Topic Coordinator::join(const Waited& waited) {
  // Counts uses of names that other ranks have given up, and that this rank does not reach.
  for (const auto& [key, error] : refused_) ++rounds_[key];
  refused_.clear();
  flush();
  const int rank = transport_.rank();
  invitations_.join(rank);
  pass_on_invitations();
  const std::uint64_t known = invitations_.joined().size() - invitations_.closed().size();
  return vote(kJoinName, known << 32 | static_cast<std::uint32_t>(rank), "join", waited);
}

void Coordinator::close() {
  if (refused_.contains(close_key_)) return;  // other ranks have given it up
  flush();
  invitations_.close(transport_.rank(), close_topic().round);
  pass_on_invitations();
}

/// Joined ranks cast votes on their own, and closing ranks agree on closing.
bool Coordinator::is_open_to_all(const Pending& pending) const {
  const bool is_vote = pending.sequence == 0 && !is_bucket_key(pending.topic.key);
  return !is_vote && pending.topic.key != close_key_;
}

bool Coordinator::is_pending(std::uint64_t key) const {
  const auto proposal = proposals_.lower_bound({key, 0});
  const auto has_key = [&](const Pending& pending) { return pending.topic.key == key; };
  return (proposal != proposals_.end() && proposal->first.key == key) ||
         std::ranges::any_of(arrivals_, has_key) || std::ranges::any_of(begun_, has_key) ||
         std::ranges::any_of(
             agreed_, [&](const Agreed& agreed) { return bucket_key(agreed.bucket) == key; });
}

Topic Coordinator::propose_close(const Waited& waited) {
  return propose(kCloseName, 0, "the end of the job", waited);
}

Topic Coordinator::next_topic(std::uint64_t key) const {
  const auto decided = rounds_.find(key);
  return {key, decided == rounds_.end() ? 0 : decided->second};
}

void Coordinator::end_join() {
  invitations_.end();
  invites_ = false;
}

std::vector<Invitation> Coordinator::take_invitations() {
  std::vector<Invitation> invitations = invitations_.take_invitations();
  std::erase_if(invitations, [&](const Invitation& invitation) {
    const Topic& topic = invitation.topic;
    return !is_bucket_key(topic.key) && is_decided(topic);
  });
  return invitations;
}

void Coordinator::decline(const Topic& topic, Error error) {
  flush();
  invitations_.decline(topic, in_group(std::move(error)));
  pass_on_invitations();
}

/// Before: frames made earlier have left.
void Coordinator::pass_on_invitations() {
  const bool invites = invitations_.are_wanted();
  if (invites && !invites_) invite_to_everything();
  invites_ = invites;
  for (const OutgoingFrame& outgoing : invitations_.take_outgoing()) {
    send(outgoing.peer, outgoing.frame);
  }
  for (Invitations::Declined& declined : invitations_.take_declined()) {
    // All operations begun without closed ranks fail alike: one log line is enough.
    if (!is_by_closed(declined.error) || !std::exchange(has_reported_closed_, true)) {
      log::report(declined.error);
    }
    negotiator_.reject({declined.topic}, declined.error);
    flush();
  }
}

Invitation Coordinator::invitation_to(const Pending& pending) {
  if (is_bucket_key(pending.topic.key)) return {.topic = pending.topic};
  return {.topic = pending.topic,
          .text = std::string(pending.text.substr(0, pending.text.find('\n'))),
          .terms = pending.waited->terms()};
}

void Coordinator::invite(const Pending& pending) {
  const Invitation invitation = invitation_to(pending);
  flush();  // may forget pending topics
  invitations_.invite(invitation);
  pass_on_invitations();
}

/// Includes topics that have ended on this rank, because a joined rank may have missed them. Uses
/// of a bucket come before a new agreement on its name.
void Coordinator::invite_to_everything() {
  std::vector<Topic> topics;
  for (std::size_t bucket = 0; bucket < ended_.size(); ++bucket) {
    if (ended_[bucket] == 0) continue;
    topics.push_back({bucket_key(static_cast<BucketId>(bucket)), ended_[bucket] - 1});
  }
  for (const Pending& pending : arrivals_) topics.push_back(pending.topic);
  for (const Pending& pending : begun_) topics.push_back(pending.topic);
  invitations_.invite(topics);
  for (const auto& [topic, proposal] : proposals_) {
    if (is_open_to_all(proposal.pending)) invitations_.invite(invitation_to(proposal.pending));
  }
}

}  // namespace kolo
