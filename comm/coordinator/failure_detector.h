#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "comm/base/clock.h"

namespace kolo {

/// Tracks which peers owe a sign of life, and for how long. Pure state machine.
class FailureDetector {
 public:
  explicit FailureDetector(Duration peer_timeout) : peer_timeout_(peer_timeout) {}

  /// Something was asked of this peer.
  void expect(int peer) { silences_.try_emplace(peer); }
  /// A frame came from this peer.
  void heard(int peer) { silences_.erase(peer); }

  /// Time for which this peer has owed a sign of life, as of the last check.
  Duration silence(int peer) const;
  /// Peers that have owed a sign of life for `limit`; each is returned once per silence.
  std::vector<int> take_silent(Duration limit);

  /// Adds the time since the last check to the silence of peers. Returns a lost peer, if any.
  std::optional<int> check(TimePoint now);

  /// `awaited` holds the peers that some work waits for now. Returns the peers to ask for a sign of
  /// life: those awaited in two consecutive checks.
  std::vector<int> take_overdue(std::set<int> awaited);

  /// No work waits for peers any more.
  void rest();

 private:
  struct Silence {
    Duration lasts{};
    bool is_taken = false;
  };

  Duration peer_timeout_;
  std::map<int, Silence> silences_;      // of peers that were asked something
  std::set<int> watched_;                // peers that were awaited at the last check
  std::optional<TimePoint> last_check_;  // empty after a time in which no work waited
};

}  // namespace kolo
