#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "comm/base/clock.h"

namespace kolo {

/// Which peers owe a sign of life, and for how long. Pure state machine.
class PeerWatch {
 public:
  explicit PeerWatch(Duration peer_timeout) : peer_timeout_(peer_timeout) {}

  /// Something was asked of this peer.
  void expect(int peer) { silences_.try_emplace(peer); }
  /// Something came from it.
  void heard(int peer) { silences_.erase(peer); }

  /// For how long this peer has owed one, as of the last check.
  Duration silence(int peer) const;
  /// Peers that have owed one for `limit`, each once in a silence.
  std::vector<int> take_silent(Duration limit);

  /// Adds the time since the last check to the silence of peers. Returns one that is lost.
  std::optional<int> check(TimePoint now);

  /// `awaited` are the peers that something waits for now. Returns those to ask for a sign of life:
  /// something has waited for them in two consecutive checks.
  std::vector<int> take_overdue(std::set<int> awaited);

  /// Nothing waits for peers any more.
  void rest();

 private:
  struct Silence {
    Duration lasts{};
    bool is_taken = false;
  };

  Duration peer_timeout_;
  std::map<int, Silence> silences_;      // of peers that were asked something
  std::set<int> watched_;                // peers that something waited for at the last check
  std::optional<TimePoint> last_check_;  // none after a time in which nothing waited
};

}  // namespace kolo
