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
/// Every rank proposes a proposal once, with a value: a fingerprint that must be equal on all ranks
/// (apart from an optional hint in its lowest bit), or in a vote any number. A rank forwards the
/// proposal to its parent once its whole subtree has proposed it, with the least and the greatest
/// value. The root applies its rule to the two values: it accepts the proposal, or reports a
/// conflict to its owner, which ends the proposal with `reject`. Accepts and rejects come down in
/// the same order on all ranks, so ids and memory that are allocated in the order of decisions are
/// equal everywhere.
///
/// The readiness of a bucket (`arrive`) passes only between the leaders of nodes; within a node the
/// caller counts. A proposal or one iteration of a bucket costs one frame up and one down per edge,
/// even if a rank is late.
class Negotiator {
 public:
  /// Condition under which a proposal is accepted once all ranks have proposed it.
  enum class Rule : std::uint8_t { kEqualValues, kEqualButLowestBit, kAnyValues };

  explicit Negotiator(CombiningTree tree);

  /// Proposes `key` for this rank, once per proposal. The rule is applied at the root.
  void propose(const ProposalKey& key, std::uint64_t value, Rule rule = Rule::kEqualValues);

  /// Marks this node as ready for `key`. Leaders only; rounds of one hash come in order.
  void arrive(const ProposalKey& key);

  /// Root only: ends proposals, whether or not all ranks have proposed them.
  void reject(const std::vector<ProposalKey>& keys, const Error& error);

  /// Takes kPropose, kAccept, kReject, kArrive and kRelease. Returns false for other kinds and for
  /// frames that this peer must not send.
  [[nodiscard]] bool receive(int peer, const Frame& frame);

  /// Whether the calls below would return nothing.
  bool is_quiet() const {
    return outgoing_.empty() && decisions_.empty() && released_.empty() && conflicts_.empty();
  }
  std::vector<OutgoingFrame> take_outgoing() { return std::exchange(outgoing_, {}); }
  /// Accepts and rejects (as frames), in the same order on all ranks.
  std::vector<Frame> take_decisions() { return std::exchange(decisions_, {}); }
  /// Proposals for which all nodes have arrived. Leaders only.
  std::vector<ProposalKey> take_released() { return std::exchange(released_, {}); }
  /// Root only: proposals that all ranks have proposed, with different fingerprints.
  std::vector<ProposalKey> take_conflicts() { return std::exchange(conflicts_, {}); }

 private:
  struct Proposal {
    std::size_t proposers = 0;  // this rank and its children
    std::uint64_t least = ~std::uint64_t{0}, greatest = 0;
    Rule rule = Rule::kEqualValues;
  };

  bool is_root() const { return tree_.parent < 0; }
  void combine(const ProposalKey& key, std::uint64_t least, std::uint64_t greatest);
  void decide(const Frame& frame);
  void release(const ProposalKey& key);

  CombiningTree tree_;
  std::map<ProposalKey, Proposal> proposals_;
  std::map<ProposalKey, std::size_t> arrivals_;  // of this node and the child leaders
  std::vector<OutgoingFrame> outgoing_;
  std::vector<Frame> decisions_;
  std::vector<ProposalKey> released_, conflicts_;
};

}  // namespace kolo
