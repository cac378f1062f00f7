#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "comm/schedule/step_progress.h"

namespace kolo {

/// Lets the messages between nodes of an urgent bucket overtake those of less urgent ones. While a
/// bucket has messages left to send from this rank, a less urgent one sends only when no message is
/// under way. So it fills the gaps, and delays the urgent one by one message at most.
///
/// For buckets that all ranks are ready to run, which excludes eager ones. Ranks may then hold back
/// different buckets without a deadlock: no rank holds back the most urgent one among those that
/// are ready everywhere and not finished everywhere. So it finishes, and another one is the most
/// urgent. See docs/decisions/0056-urgent-buckets-send-first.md.
///
/// Threads: one. Steady state allocates nothing.
class SendTurns {
 public:
  /// A bucket that takes part.
  struct Sender {
    Sender(std::uint32_t of, std::size_t messages)
        : urgency(of), per_iteration(messages), held(messages) {}

    std::uint32_t urgency;      ///< The smaller, the more urgent.
    std::size_t per_iteration;  ///< Messages to other nodes.
    std::size_t unsent = 0;     ///< Of these, in the current iteration.
    std::size_t under_way = 0;  ///< Sent, and not complete.
    StepQueue held;             ///< Steps that are ready to send and wait for their turn.
  };

  /// Buckets are about to go on, the most urgent one first; each ends with `pass`.
  void begin_round() { most_urgent_ = std::numeric_limits<std::uint32_t>::max(); }
  void pass(const Sender& sender) {
    if (sender.unsent > 0 && sender.urgency < most_urgent_) most_urgent_ = sender.urgency;
  }

  /// An iteration of the bucket begins.
  void begin(Sender& sender) {
    sender.unsent = sender.per_iteration;
    sender.held.clear();
  }
  /// Whether a send that is ready must wait; then `release` returns it later.
  bool hold(Sender& sender, StepId step) {
    if (may_send(sender)) return false;
    sender.held.push(step);
    return true;
  }
  /// The step that was held first, if it may go on now.
  std::optional<StepId> release(Sender& sender) {
    if (sender.held.empty() || !may_send(sender)) return std::nullopt;
    return sender.held.pop();
  }
  void sent(Sender& sender) {
    --sender.unsent;
    ++sender.under_way;
    ++under_way_;
  }
  /// One of its messages is complete.
  void completed(Sender& sender) {
    --sender.under_way;
    --under_way_;
  }
  /// What is under way of it does not count any more.
  void forget(Sender& sender) {
    under_way_ -= sender.under_way;
    sender.under_way = 0;
  }

 private:
  bool may_send(const Sender& sender) const {
    return sender.urgency <= most_urgent_ || under_way_ == 0;
  }

  std::uint32_t most_urgent_ = 0;  // of the buckets of this round that have messages left
  std::size_t under_way_ = 0;      // messages of all senders
};

}  // namespace kolo
