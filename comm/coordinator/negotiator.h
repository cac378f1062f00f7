#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "comm/coordinator/combining_tree.h"
#include "comm/coordinator/frame.h"

namespace kolo {

/// One rank's view of agreement: frames in, frames and decisions out. Pure state machine: no
/// thread, no clock, no transport.
///
/// Every rank makes each proposal once, with a value. The value is a fingerprint that must be equal
/// on all ranks (apart from an optional hint in its lowest bit), or any number in a vote. A rank
/// forwards the proposal to its parent once its whole subtree has made it, with the least and the
/// greatest value. The root applies the rule to these two values. It accepts the proposal, or
/// reports a conflict to its caller, which ends the proposal with `reject`. All ranks receive
/// accepts and rejects in the same order, so ids and memory that are allocated in the order of
/// decisions are equal on all ranks.
///
/// The readiness of a bucket (`mark_ready`) is sent only between the leaders of nodes; within a
/// node the caller counts ranks. A proposal or an iteration of a bucket costs one frame up and one
/// frame down per edge, even if a rank is late.
class Negotiator {
 public:
  /// Condition on the values of all ranks under which a proposal is accepted.
  enum class Rule : std::uint8_t { kEqualValues, kEqualButLowestBit, kAnyValues };

  explicit Negotiator(CombiningTree tree);

  /// Makes the proposal `key` on this rank, once per key. Only the root applies the rule.
  void propose(const ProposalKey& key, std::uint64_t value, Rule rule = Rule::kEqualValues);

  /// Marks this node as ready for `key`. Only the node's leader calls it, for the uses of one
  /// name in their order.
  void mark_ready(const ProposalKey& key);

  /// Rejects proposals on all ranks, even if some ranks have not made them. Only the root calls it.
  void reject(const std::vector<ProposalKey>& keys, const Error& error);

  /// Forgets what ranks proposed for this hash too late: their proposals crossed a rejection.
  /// Before: all ranks have finished with the hash.
  void forget(std::uint64_t hash);

  /// Takes kPropose, kAccept, kReject, kArrive and kRelease. Returns false for other kinds and for
  /// frames that this peer must not send.
  [[nodiscard]] bool receive(int peer, const Frame& frame);

  /// Whether all `take_...` functions below would return nothing.
  bool is_quiet() const {
    return outgoing_.empty() && decisions_.empty() && released_.empty() && conflicts_.empty();
  }
  std::vector<OutgoingFrame> take_outgoing() { return std::exchange(outgoing_, {}); }
  /// Returns new decisions (kAccept and kReject frames), in the same order on all ranks.
  std::vector<Frame> take_decisions() { return std::exchange(decisions_, {}); }
  /// Returns the keys for which all nodes are ready. Only leaders call it.
  std::vector<ProposalKey> take_released() { return std::exchange(released_, {}); }
  /// Returns proposals that ranks have made with different fingerprints. Only the root calls it.
  std::vector<ProposalKey> take_conflicts() { return std::exchange(conflicts_, {}); }

 private:
  struct Proposal {
    std::size_t proposers = 0;  // number of proposers among this rank and its children
    std::uint64_t least = ~std::uint64_t{0}, greatest = 0;
    Rule rule = Rule::kEqualValues;
  };

  bool is_root() const { return tree_.parent < 0; }
  void combine(const ProposalKey& key, std::uint64_t least, std::uint64_t greatest);
  void decide(const Frame& frame);
  void release(const ProposalKey& key);

  CombiningTree tree_;
  std::map<ProposalKey, Proposal> proposals_;
  std::map<ProposalKey, std::size_t> arrivals_;  // number of ready nodes among this one and those
                                                 // of child leaders
  std::vector<OutgoingFrame> outgoing_;
  std::vector<Frame> decisions_;
  std::vector<ProposalKey> released_, conflicts_;
};

}  // namespace kolo
