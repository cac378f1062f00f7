#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/coordinator/combining_tree.h"
#include "comm/coordinator/frame.h"

namespace kolo {

/// Something that other ranks do, for a rank that has joined.
struct Invitation {
  Topic topic;
  std::string text{};              ///< What it is, if it is new to all ranks.
  std::vector<std::byte> terms{};  ///< Of a new one: how to take part; empty: nobody can.
};

/// Which ranks have joined, and what they are invited to, as one rank sees it: frames in, frames
/// out. Pure state machine: no thread, no clock, no transport.
///
/// A rank that has joined has run out of data, and takes part in what others still do. It cannot
/// know what that is. So as soon as any rank has joined, each of the others tells all ranks what
/// it begins, and what it had begun before. The news goes along the edges of the tree, away from
/// where it comes from. A rank passes on only later rounds of a key than before, whoever invites,
/// so a topic crosses each edge at most once in each direction.
///
/// Edges keep frames in order, and frames leave in the order in which calls make them. So the
/// decision that a topic follows from reaches every rank before the invitation to it, and the
/// invitation before the decision that all ranks have joined.
///
/// Declining goes up the tree, once per edge and topic.
///
/// A rank that closes has joined for good: it declines what it does not come to, and invites others
/// to what it has begun before.
class Invitations {
 public:
  struct Declined {
    Topic topic;
    Error error;
  };

  explicit Invitations(const CombiningTree& tree) : tree_(tree) {}

  /// This rank joins.
  void join(int rank);
  /// All ranks have joined: everything begins anew. Invitations that have come may be taken yet.
  void end();
  /// This rank closes. Attempts of all ranks to close are counted, since they may be rejected.
  void close(int rank, std::uint64_t attempt);
  /// This attempt of all ranks to close has failed.
  void end_closing(std::uint64_t attempt);

  /// Ranks that are known to have joined, or closed, this one included.
  const std::set<int>& joined() const { return joined_; }
  bool has_joined() const { return has_joined_; }
  bool has_closed() const { return has_closed_; }
  /// Those of them that have closed.
  const std::set<int>& closed() const { return closed_; }
  /// Whether this rank is to invite others to what it begins.
  bool are_wanted() const {
    return has_joined_ ? has_closed_ && joined_.size() > 1 : !joined_.empty();
  }

  /// This rank begins these topics, of which all ranks know. Before: `are_wanted()`.
  void invite(std::span<const Topic> topics);
  /// The same for a topic that is new to them.
  void invite(const Invitation& invitation);
  /// This rank, which has joined, has no part in the topic: it is to end with this error.
  void decline(const Topic& topic, const Error& error);

  /// The topic has failed, so nobody need decline it any more.
  void rejected(const Topic& topic) { ending_.insert(topic); }

  /// Nobody has been invited to any use of this key: it begins anew.
  void forget(std::uint64_t key);

  /// Takes kJoined, kClosed, kInvite and kDecline. Returns false for other kinds and for frames
  /// that this peer has no business sending.
  [[nodiscard]] bool receive(int peer, const Frame& frame);

  std::vector<OutgoingFrame> take_outgoing() { return std::exchange(outgoing_, {}); }
  /// The invitations of this rank since it joined, first to buckets, then to new topics. They
  /// include what it may have missed before. Some may be over.
  std::vector<Invitation> take_invitations() { return std::exchange(fresh_, {}); }
  /// Root only: topics to reject.
  std::vector<Declined> take_declined() { return std::exchange(declined_, {}); }

 private:
  bool is_neighbour(int peer) const;
  void begin(int rank);
  bool note(const Invitation& invitation);
  void pass_on(const Frame& frame, int from);

  const CombiningTree& tree_;
  std::set<int> joined_, closed_;
  bool has_joined_ = false, has_closed_ = false;
  std::uint64_t attempt_ = 0;                   // to close: earlier ones were rejected
  std::map<std::uint64_t, Invitation> latest_;  // by key, of any rank
  std::set<Topic> ending_;                      // that are declined, or have been rejected
  std::vector<OutgoingFrame> outgoing_;
  std::vector<Invitation> fresh_;
  std::vector<Declined> declined_;
};

}  // namespace kolo
