#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "comm/transport/transport.h"

namespace kolo {

/// Control frames that arrive, in the order in which they were announced. A large one may still be
/// incomplete when a later one of the same peer is complete, which then waits for it; frames of
/// other peers do not.
///
/// Threads: one.
class ControlArrivals {
 public:
  /// Stays in place until it is complete and has been taken, or dropped.
  class Arrival {
   public:
    Arrival(int peer, std::size_t bytes) : peer_(peer), bytes_(bytes) {}

    /// Where its bytes are to be written.
    std::span<std::byte> memory() { return bytes_; }
    /// All of them are there.
    void complete() { is_complete_ = true; }
    /// Nobody is to take it.
    void drop() { is_taken_ = true; }

   private:
    friend class ControlArrivals;

    int peer_;
    std::vector<std::byte> bytes_;
    bool is_complete_ = false;
    bool is_taken_ = false;
  };

  /// A frame of so many bytes comes from `peer`.
  Arrival& announce(int peer, std::size_t bytes) {
    forget_taken();
    return arrivals_.emplace_back(peer, bytes);
  }

  /// Takes the first frame that waits for nothing. Returns whether there was one.
  bool take(ControlFrame& frame) {
    for (auto arrival = arrivals_.begin(); arrival != arrivals_.end(); ++arrival) {
      if (arrival->is_taken_ || !arrival->is_complete_ || waits_for_earlier(*arrival)) continue;
      frame.peer = arrival->peer_;
      frame.bytes.assign(arrival->bytes_.begin(), arrival->bytes_.end());
      arrival->is_taken_ = true;
      forget_taken();
      return true;
    }
    return false;
  }

  /// Before: nothing is written to any of them any more.
  void clear() { arrivals_.clear(); }

 private:
  bool waits_for_earlier(const Arrival& arrival) const {
    for (const Arrival& earlier : arrivals_) {
      if (&earlier == &arrival) return false;
      if (earlier.peer_ == arrival.peer_ && !earlier.is_complete_) return true;
    }
    return false;
  }

  void forget_taken() {
    while (!arrivals_.empty() && arrivals_.front().is_taken_ && arrivals_.front().is_complete_) {
      arrivals_.pop_front();
    }
  }

  std::deque<Arrival> arrivals_;
};

}  // namespace kolo
