#include "comm/coordinator/invitations.h"

#include "comm/base/contains.h"

namespace kolo {
namespace {

constexpr int kThisRank = -1;

Frame frame_of(const Invitation& invitation) {
  return {.kind = FrameKind::kInvite,
          .topics = {invitation.topic},
          .text = invitation.text,
          .terms = invitation.terms};
}

}  // namespace

bool Invitations::is_neighbour(int peer) const {
  return peer == tree_.parent || contains(tree_.children, peer);
}

void Invitations::pass_on(const Frame& frame, int from) {
  if (tree_.parent >= 0 && tree_.parent != from) outgoing_.push_back({tree_.parent, frame});
  for (const int child : tree_.children) {
    if (child != from) outgoing_.push_back({child, frame});
  }
}

/// Returns whether the invitation is new.
bool Invitations::note(const Invitation& invitation) {
  const auto [latest, is_new] = latest_.try_emplace(invitation.topic.key, invitation);
  if (!is_new) {
    if (latest->second.topic.round >= invitation.topic.round) return false;
    latest->second = invitation;
  }
  if (has_joined_) fresh_.push_back(invitation);
  return true;
}

void Invitations::join(int rank) {
  pass_on({.kind = FrameKind::kJoined, .least = static_cast<std::uint64_t>(rank)}, kThisRank);
  begin(rank);
}

void Invitations::close(int rank, std::uint64_t attempt) {
  has_closed_ = true;
  closed_.insert(rank);
  pass_on(
      {.kind = FrameKind::kClosed, .least = static_cast<std::uint64_t>(rank), .greatest = attempt},
      kThisRank);
  begin(rank);
}

void Invitations::begin(int rank) {
  has_joined_ = true;
  joined_.insert(rank);
  // A new use of a name comes after the uses of its previous bucket. Bucket keys are greater than
  // name keys.
  const auto first_bucket = latest_.lower_bound(kBucketKeyBit);
  for (auto it = first_bucket; it != latest_.end(); ++it) fresh_.push_back(it->second);
  for (auto it = latest_.begin(); it != first_bucket; ++it) fresh_.push_back(it->second);
}

void Invitations::end() {
  joined_.clear();
  has_joined_ = false;
  latest_.clear();
  ending_.clear();
}

void Invitations::end_closing(std::uint64_t attempt) {
  attempt_ = attempt + 1;
  if (std::exchange(has_closed_, false)) has_joined_ = false;
  for (const int each : closed_) joined_.erase(each);
  closed_.clear();
}

void Invitations::forget(std::uint64_t key) {
  latest_.erase(key);
  std::erase_if(ending_, [&](const Topic& topic) { return topic.key == key; });
  std::erase_if(fresh_, [&](const Invitation& invitation) { return invitation.topic.key == key; });
}

void Invitations::invite(std::span<const Topic> topics) {
  Frame news{.kind = FrameKind::kInvite};
  for (const Topic& topic : topics) {
    if (note({.topic = topic})) news.topics.push_back(topic);
  }
  if (!news.topics.empty()) pass_on(news, kThisRank);
}

void Invitations::invite(const Invitation& invitation) {
  if (note(invitation)) pass_on(frame_of(invitation), kThisRank);
}

void Invitations::decline(const Topic& topic, const Error& error) {
  if (!ending_.insert(topic).second) return;
  if (tree_.parent < 0) {
    declined_.push_back({topic, error});
  } else {
    outgoing_.push_back(
        {tree_.parent, {.kind = FrameKind::kDecline, .topic = topic, .error = error}});
  }
}

bool Invitations::receive(int peer, const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::kJoined:
      if (!is_neighbour(peer) || !joined_.insert(static_cast<int>(frame.least)).second)
        return false;
      pass_on(frame, peer);
      return true;
    case FrameKind::kClosed:
      if (!is_neighbour(peer)) return false;
      if (frame.greatest < attempt_) return true;  // the attempt has been rejected meanwhile
      if (!joined_.insert(static_cast<int>(frame.least)).second) return false;
      closed_.insert(static_cast<int>(frame.least));
      pass_on(frame, peer);
      return true;
    case FrameKind::kInvite: {
      if (!is_neighbour(peer)) return false;
      Frame news = frame;
      std::erase_if(news.topics, [&](const Topic& topic) {
        return !note({.topic = topic, .text = frame.text, .terms = frame.terms});
      });
      if (!news.topics.empty()) pass_on(news, peer);
      return true;
    }
    case FrameKind::kDecline:
      if (!contains(tree_.children, peer)) return false;
      decline(frame.topic, frame.error);
      return true;
    default:
      return false;
  }
}

}  // namespace kolo
