#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "comm/base/clock.h"

namespace kolo {

/// Tracks which peers owe an answer, and for how long. Pure state machine.
class FailureDetector {
 public:
  explicit FailureDetector(Duration peer_timeout) : peer_timeout_(peer_timeout) {}

  /// Records that this peer was asked something and owes an answer.
  void expect(int peer) { silences_.try_emplace(peer); }
  /// Records that a frame of this peer was received, so that it owes no answer.
  void heard(int peer) { silences_.erase(peer); }

  /// Time for which this peer has owed an answer, as of the last check.
  Duration silence(int peer) const;
  /// Returns the peers that have owed an answer for `limit`, each of them once until it answers.
  std::vector<int> take_silent(Duration limit);

  /// Adds the time since the last check to the silence of peers. Returns a peer whose silence has
  /// reached `peer_timeout`, if any.
  std::optional<int> check(TimePoint now);

  /// Returns the peers to ping: those of `awaited` that were awaited at the previous call, too, and
  /// owe no answer. `awaited` holds the peers that some work waits for now.
  std::vector<int> take_overdue(std::set<int> awaited);

  /// Resets all state, when no work waits for peers.
  void rest();

 private:
  struct Silence {
    Duration lasts{};
    bool is_taken = false;
  };

  Duration peer_timeout_;
  std::map<int, Silence> silences_;      // of peers that owe an answer
  std::set<int> watched_;                // peers awaited at the last call of `take_overdue`
  std::optional<TimePoint> last_check_;  // empty after `rest`
};

}  // namespace kolo
