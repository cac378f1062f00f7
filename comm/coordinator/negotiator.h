#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "comm/coordinator/combining_tree.h"
#include "comm/coordinator/frame.h"

namespace kolo {

/// Agreement as one rank sees it: frames in, frames and decisions out. Pure state machine: no
/// thread, no clock, no transport.
///
/// Every rank proposes a topic once, with a value: a fingerprint that must be equal on all ranks,
/// perhaps but for a hint in its lowest bit, or any number in a vote. A rank forwards the topic to
/// its parent when its whole subtree has proposed it, with the least and the greatest value. The
/// root accepts the topic if its rule says so of the two, and otherwise reports a conflict to its
/// owner, who ends it with `reject`.
/// Accepts and rejects come down in one order, which is the same on all ranks, so ids and memory
/// that are allocated in the order of decisions are the same everywhere.
///
/// The readiness of a bucket (`arrive`) passes between the leaders of nodes only; within a node the
/// caller counts. A topic or one iteration of a bucket costs one frame up and one down per edge,
/// however long a straggler takes.
class Negotiator {
 public:
  /// When a topic that all have proposed is accepted.
  enum class Rule : std::uint8_t { kEqualValues, kEqualButLowestBit, kAnyValues };

  explicit Negotiator(CombiningTree tree);

  /// This rank proposes `topic`. Once per topic; the root's rule counts.
  void propose(const Topic& topic, std::uint64_t value, Rule rule = Rule::kEqualValues);

  /// This node is ready for `topic`. Leaders only; rounds of one key come in order.
  void arrive(const Topic& topic);

  /// Root only: ends topics, proposed by everybody or not.
  void reject(const std::vector<Topic>& topics, const Error& error);

  /// Takes kPropose, kAccept, kReject, kArrive and kRelease. Returns false for other kinds and for
  /// frames that this peer has no business sending.
  [[nodiscard]] bool receive(int peer, const Frame& frame);

  /// The calls below would return nothing.
  bool is_quiet() const {
    return outgoing_.empty() && decisions_.empty() && released_.empty() && conflicts_.empty();
  }
  std::vector<OutgoingFrame> take_outgoing() { return std::exchange(outgoing_, {}); }
  /// Accepts and rejects (as frames), in the order that is equal on all ranks.
  std::vector<Frame> take_decisions() { return std::exchange(decisions_, {}); }
  /// Topics for which all nodes have arrived. Leaders only.
  std::vector<Topic> take_released() { return std::exchange(released_, {}); }
  /// Root only: topics proposed by everybody with different fingerprints.
  std::vector<Topic> take_conflicts() { return std::exchange(conflicts_, {}); }

 private:
  struct Proposal {
    std::size_t proposers = 0;  // this rank and its children
    std::uint64_t least = ~std::uint64_t{0}, greatest = 0;
    Rule rule = Rule::kEqualValues;
  };

  bool is_root() const { return tree_.parent < 0; }
  void combine(const Topic& topic, std::uint64_t least, std::uint64_t greatest);
  void decide(const Frame& frame);
  void release(const Topic& topic);

  CombiningTree tree_;
  std::map<Topic, Proposal> proposals_;
  std::map<Topic, std::size_t> arrivals_;  // of this node and the child leaders
  std::vector<OutgoingFrame> outgoing_;
  std::vector<Frame> decisions_;
  std::vector<Topic> released_, conflicts_;
};

}  // namespace kolo
