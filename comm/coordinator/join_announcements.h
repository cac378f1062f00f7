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

/// An invitation of joined ranks to participate in an operation of other ranks.
struct Invitation {
  ProposalKey key;
  std::string text{};              ///< Description of a new operation; otherwise empty.
  std::vector<std::byte> terms{};  ///< How to participate in it, or empty if joined ranks cannot.
};

/// One rank's view of the joined ranks and their invitations: frames in, frames out. Pure state
/// machine: no thread, no clock, no transport.
///
/// A rank that has joined has no more data, but participates in the operations of other ranks,
/// which it cannot know. Therefore, while any rank has joined, each other rank sends invitations to
/// all ranks for the operations that it begins or had begun before. Invitations are forwarded along
/// the edges of the tree. For each hash, a rank forwards only later rounds than before, so an
/// invitation crosses each edge at most once per direction.
///
/// Edges preserve the order of frames. So every rank receives the decisions that precede a proposal
/// before its invitation, and the invitation before the decision that all ranks have joined.
///
/// A declined proposal is reported up the tree, once per edge.
///
/// A rank that closes has joined permanently. It declines operations in which it does not
/// participate, and invites others to operations that it began before.
class JoinAnnouncements {
 public:
  struct Declined {
    ProposalKey key;
    Error error;
  };

  explicit JoinAnnouncements(const CombiningTree& tree) : tree_(tree) {}

  /// Marks this rank, `rank`, as joined.
  void join(int rank);
  /// Resets the state after all ranks have joined. Invitations received so far may still be taken.
  void end();
  /// Marks this rank, `rank`, as closed. `attempt` is the number of the attempt, which may be
  /// rejected.
  void close(int rank, std::uint64_t attempt);
  /// Reopens the closed ranks after the attempt to close was rejected.
  void end_closing(std::uint64_t attempt);

  /// Ranks known to have joined or closed, including this one.
  const std::set<int>& joined() const { return joined_; }
  bool has_joined() const { return has_joined_; }
  bool has_closed() const { return has_closed_; }
  /// Ranks known to have closed; a subset of `joined()`.
  const std::set<int>& closed() const { return closed_; }
  /// Whether this rank must invite others to operations that it begins.
  bool are_wanted() const {
    return has_joined_ ? has_closed_ && joined_.size() > 1 : !joined_.empty();
  }

  /// Invites to the proposals `keys`, which all ranks know. Before: `are_wanted()`.
  void invite(std::span<const ProposalKey> keys);
  /// Invites to a proposal that is new to all ranks. Before: `are_wanted()`.
  void invite(const Invitation& invitation);
  /// Declines the proposal, which then fails with `error`. Before: this rank has joined.
  void decline(const ProposalKey& key, const Error& error);

  /// Records that the proposal has failed, so that no rank needs to decline it.
  void rejected(const ProposalKey& key) { ending_.insert(key); }

  /// Forgets all invitations to uses of this hash.
  void forget(std::uint64_t hash);

  /// Takes kJoined, kClosed, kInvite and kDecline. Returns false for other kinds and for frames
  /// that this peer must not send.
  [[nodiscard]] bool receive(int peer, const Frame& frame);

  std::vector<OutgoingFrame> take_outgoing() { return std::exchange(outgoing_, {}); }
  /// Returns invitations since this rank joined, including earlier ones that it may have missed.
  /// Some of their proposals may have ended already.
  std::vector<Invitation> take_invitations() { return std::exchange(fresh_, {}); }
  /// Returns declined proposals, which the caller rejects. Only the root calls it.
  std::vector<Declined> take_declined() { return std::exchange(declined_, {}); }

 private:
  bool is_neighbour(int peer) const;
  void begin(int rank);
  bool note(const Invitation& invitation);
  void pass_on(const Frame& frame, int from);

  const CombiningTree& tree_;
  std::set<int> joined_, closed_;
  bool has_joined_ = false, has_closed_ = false;
  std::uint64_t attempt_ = 0;                   // number of the last attempt to close
  std::map<std::uint64_t, Invitation> latest_;  // latest invitation, by hash
  std::set<ProposalKey> ending_;                // proposals that are declined or rejected
  std::vector<OutgoingFrame> outgoing_;
  std::vector<Invitation> fresh_;
  std::vector<Declined> declined_;
};

}  // namespace kolo
