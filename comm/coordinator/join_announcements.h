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

/// An operation of other ranks in which a rank that has joined shall take part.
struct Invitation {
  ProposalKey key;
  std::string text{};              ///< Description, if the operation is new to all ranks.
  std::vector<std::byte> terms{};  ///< For a new operation: how to take part; empty: joined ranks
                                   ///< cannot.
};

/// One rank's view of which ranks have joined and what they are invited to: frames in, frames out.
/// Pure state machine: no thread, no clock, no transport.
///
/// A rank that has joined has run out of data, and takes part in the operations of other ranks,
/// which it cannot know. So as soon as any rank has joined, each of the others tells all ranks
/// which operations it begins, and which it had begun before. The news travels along the edges of
/// the tree, away from its source. For each hash a rank forwards only later rounds than before,
/// whichever rank invites, so a proposal crosses each edge at most once per direction.
///
/// Edges preserve the order of frames, which is the order of the calls. So every rank receives the
/// decision that led to a proposal before the invitation to that proposal, and the invitation
/// before the decision that all ranks have joined.
///
/// A rank's decline goes up the tree, once per edge and proposal.
///
/// A rank that closes has joined permanently: it declines operations that it does not take part in,
/// and invites others to operations that it began before.
class JoinAnnouncements {
 public:
  struct Declined {
    ProposalKey key;
    Error error;
  };

  explicit JoinAnnouncements(const CombiningTree& tree) : tree_(tree) {}

  /// Marks this rank as joined.
  void join(int rank);
  /// Resets the state after all ranks have joined. Pending invitations may still be taken.
  void end();
  /// Marks this rank as closed. Attempts to close are counted, since they may be rejected.
  void close(int rank, std::uint64_t attempt);
  /// This attempt of all ranks to close was rejected.
  void end_closing(std::uint64_t attempt);

  /// Ranks known to have joined or closed, including this one.
  const std::set<int>& joined() const { return joined_; }
  bool has_joined() const { return has_joined_; }
  bool has_closed() const { return has_closed_; }
  /// The subset of `joined` that has closed.
  const std::set<int>& closed() const { return closed_; }
  /// Whether this rank must invite others to operations that it begins.
  bool are_wanted() const {
    return has_joined_ ? has_closed_ && joined_.size() > 1 : !joined_.empty();
  }

  /// This rank begins these proposals, which all ranks know. Before: `are_wanted()`.
  void invite(std::span<const ProposalKey> keys);
  /// This rank begins a proposal that is new to all ranks. Before: `are_wanted()`.
  void invite(const Invitation& invitation);
  /// Declines the proposal on this rank, which has joined: the proposal ends with this error.
  void decline(const ProposalKey& key, const Error& error);

  /// The proposal has failed, so declining it is no longer needed.
  void rejected(const ProposalKey& key) { ending_.insert(key); }

  /// Forgets a hash: no rank has been invited to any use of it.
  void forget(std::uint64_t hash);

  /// Takes kJoined, kClosed, kInvite and kDecline. Returns false for other kinds and for frames
  /// that this peer must not send.
  [[nodiscard]] bool receive(int peer, const Frame& frame);

  std::vector<OutgoingFrame> take_outgoing() { return std::exchange(outgoing_, {}); }
  /// JoinAnnouncements of this rank since it joined, first to buckets, then to new proposals,
  /// including earlier ones that it may have missed. Some may have ended already.
  std::vector<Invitation> take_invitations() { return std::exchange(fresh_, {}); }
  /// Root only: proposals to reject.
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
  std::map<std::uint64_t, Invitation> latest_;  // by hash, from any rank
  std::set<ProposalKey> ending_;                // proposals that are declined or rejected
  std::vector<OutgoingFrame> outgoing_;
  std::vector<Invitation> fresh_;
  std::vector<Declined> declined_;
};

}  // namespace kolo
