#include "comm/coordinator/join_announcements.h"

#include "comm/base/contains.h"

namespace kolo {
namespace {

constexpr int kThisRank = -1;

Frame frame_of(const Invitation& invitation) {
  return {.kind = FrameKind::kInvite,
          .keys = {invitation.key},
          .text = invitation.text,
          .terms = invitation.terms};
}

}  // namespace

bool JoinAnnouncements::is_neighbour(int peer) const {
  return peer == tree_.parent || contains(tree_.children, peer);
}

void JoinAnnouncements::pass_on(const Frame& frame, int from) {
  if (tree_.parent >= 0 && tree_.parent != from) outgoing_.push_back({tree_.parent, frame});
  for (const int child : tree_.children) {
    if (child != from) outgoing_.push_back({child, frame});
  }
}

/// Stores an invitation. Returns whether it is new.
bool JoinAnnouncements::note(const Invitation& invitation) {
  const auto [latest, is_new] = latest_.try_emplace(invitation.key.hash, invitation);
  if (!is_new) {
    if (latest->second.key.round >= invitation.key.round) return false;
    latest->second = invitation;
  }
  if (has_joined_) fresh_.push_back(invitation);
  return true;
}

void JoinAnnouncements::join(int rank) {
  pass_on({.kind = FrameKind::kJoined, .least = static_cast<std::uint64_t>(rank)}, kThisRank);
  begin(rank);
}

void JoinAnnouncements::close(int rank, std::uint64_t attempt) {
  has_closed_ = true;
  closed_.insert(rank);
  pass_on(
      {.kind = FrameKind::kClosed, .least = static_cast<std::uint64_t>(rank), .greatest = attempt},
      kThisRank);
  begin(rank);
}

void JoinAnnouncements::begin(int rank) {
  has_joined_ = true;
  joined_.insert(rank);
  // Invitations to buckets come first: a new use of a name follows the uses of its previous bucket.
  const auto first_bucket = latest_.lower_bound(kBucketHashBit);
  for (auto it = first_bucket; it != latest_.end(); ++it) fresh_.push_back(it->second);
  for (auto it = latest_.begin(); it != first_bucket; ++it) fresh_.push_back(it->second);
}

void JoinAnnouncements::end() {
  joined_.clear();
  has_joined_ = false;
  latest_.clear();
  ending_.clear();
}

void JoinAnnouncements::end_closing(std::uint64_t attempt) {
  attempt_ = attempt + 1;
  if (std::exchange(has_closed_, false)) has_joined_ = false;
  for (const int each : closed_) joined_.erase(each);
  closed_.clear();
}

void JoinAnnouncements::forget(std::uint64_t hash) {
  latest_.erase(hash);
  std::erase_if(ending_, [&](const ProposalKey& key) { return key.hash == hash; });
  std::erase_if(fresh_, [&](const Invitation& invitation) { return invitation.key.hash == hash; });
}

void JoinAnnouncements::invite(std::span<const ProposalKey> keys) {
  Frame news{.kind = FrameKind::kInvite};
  for (const ProposalKey& key : keys) {
    if (note({.key = key})) news.keys.push_back(key);
  }
  if (!news.keys.empty()) pass_on(news, kThisRank);
}

void JoinAnnouncements::invite(const Invitation& invitation) {
  if (note(invitation)) pass_on(frame_of(invitation), kThisRank);
}

void JoinAnnouncements::decline(const ProposalKey& key, const Error& error) {
  if (!ending_.insert(key).second) return;
  if (tree_.parent < 0) {
    declined_.push_back({key, error});
  } else {
    outgoing_.push_back({tree_.parent, {.kind = FrameKind::kDecline, .key = key, .error = error}});
  }
}

bool JoinAnnouncements::receive(int peer, const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::kJoined:
      if (!is_neighbour(peer) || !joined_.insert(static_cast<int>(frame.least)).second)
        return false;
      pass_on(frame, peer);
      return true;
    case FrameKind::kClosed:
      if (!is_neighbour(peer)) return false;
      if (frame.greatest < attempt_) return true;  // the attempt has been rejected
      if (!joined_.insert(static_cast<int>(frame.least)).second) return false;
      closed_.insert(static_cast<int>(frame.least));
      pass_on(frame, peer);
      return true;
    case FrameKind::kInvite: {
      if (!is_neighbour(peer)) return false;
      Frame news = frame;
      std::erase_if(news.keys, [&](const ProposalKey& key) {
        return !note({.key = key, .text = frame.text, .terms = frame.terms});
      });
      if (!news.keys.empty()) pass_on(news, peer);
      return true;
    }
    case FrameKind::kDecline:
      if (!contains(tree_.children, peer)) return false;
      decline(frame.key, frame.error);
      return true;
    default:
      return false;
  }
}

}  // namespace kolo
