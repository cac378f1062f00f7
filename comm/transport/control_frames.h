#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/log.h"
#include "comm/transport/transport.h"

namespace kolo {

/// Control frames received for one group, or for all creations of groups, from ranks of the job.
using ControlInbox = std::deque<ControlFrame>;

/// Separates the control frames that a rank receives by job and group. A frame of a group begins
/// with a byte that no frame of the job begins with, then the number of the receiver's inbox:
///
///   0xFF | number of the inbox, 8 bytes | frame of the group
///
/// Numbers are never reused, so a frame that is received after its group has ended is dropped.
///
/// Threads: the thread that drives the engine.
class ControlDemux {
 public:
  using Number = std::uint64_t;

  /// Number of the inbox for creations of groups; equal on all ranks.
  static constexpr Number kCreators = 0;
  /// Number of bytes in front of a group's frame.
  static constexpr std::size_t kHeaderBytes = 1 + sizeof(Number);

  /// Registers an inbox under a new number; the first one gets `kCreators`. The inbox must outlive
  /// this object or be closed before.
  Number open(ControlInbox& inbox) {
    inboxes_[next_] = &inbox;
    return next_++;
  }
  void close(Number number) { inboxes_.erase(number); }

  /// Moves a frame of a group to its inbox and returns true. Leaves a frame of the job unchanged
  /// and returns false.
  bool take(ControlFrame& frame) {
    if (frame.bytes.size() < kHeaderBytes || frame.bytes.front() != kGroupMark) return false;
    Number number = 0;
    for (std::size_t i = 0; i < sizeof(Number); ++i) {
      number |= static_cast<Number>(frame.bytes[1 + i]) << (8 * i);
    }
    const auto found = inboxes_.find(number);
    if (found == inboxes_.end()) return true;
    found->second->push_back(
        {.peer = frame.peer, .bytes = {frame.bytes.begin() + kHeaderBytes, frame.bytes.end()}});
    return true;
  }

  /// Sets `framed` to the frame that delivers `bytes` to inbox `number` of the receiver.
  static void address(Number number, std::span<const std::byte> bytes,
                      std::vector<std::byte>& framed) {
    framed.assign(1, kGroupMark);
    for (std::size_t i = 0; i < sizeof(Number); ++i) {
      framed.push_back(static_cast<std::byte>(number >> (8 * i) & 0xFF));
    }
    framed.insert(framed.end(), bytes.begin(), bytes.end());
  }

 private:
  static constexpr std::byte kGroupMark{0xFF};

  std::map<Number, ControlInbox*> inboxes_;
  Number next_ = kCreators;
};

/// Control frames that are being received, in the order in which they were announced. A large frame
/// may still be incomplete when a later frame of the same peer is complete; `take` then returns the
/// large one first. Frames of other peers do not wait.
///
/// Threads: one.
class ControlArrivals {
 public:
  /// A frame that is being received. Its address is valid until it is dropped or taken.
  class Arrival {
   public:
    Arrival(int peer, std::size_t bytes) : peer_(peer), bytes_(bytes) {}

    /// Memory for the bytes of the frame.
    std::span<std::byte> memory() { return bytes_; }
    /// Marks the frame as complete: all bytes have been written.
    void complete() { is_complete_ = true; }
    /// Marks the frame as one that `take` skips.
    void drop() { is_taken_ = true; }

   private:
    friend class ControlArrivals;

    int peer_;
    std::vector<std::byte> bytes_;
    bool is_complete_ = false;
    bool is_taken_ = false;
  };

  /// Adds an incomplete frame of `bytes` bytes from `peer`.
  Arrival& announce(int peer, std::size_t bytes) {
    forget_taken();
    return arrivals_.emplace_back(peer, bytes);
  }

  /// Takes the first complete frame that has no incomplete frame of the same peer before it.
  /// Returns whether there was such a frame.
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

  /// Removes all frames. Before: no frame is still being written.
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

/// Counts control frames that no rank of this job can have sent. Other programs that reach a port
/// of the network transport can write such frames, so they are dropped and have no effect. The 1st,
/// 10th, 100th and so on are logged.
///
/// Threads: one.
class ForeignFrames {
 public:
  /// Counts a dropped frame. `source` is the rank that the frame names as its sender.
  void drop(int source, std::string_view why) {
    if (++count_ < next_told_) return;
    next_told_ *= 10;
    log::warn("dropped a control frame that says it is from rank " + std::to_string(source) + ": " +
              std::string(why) + "; number " + std::to_string(count_) +
              " of its kind. Does another program write to the ports of this rank?");
  }

  std::uint64_t count() const { return count_; }

 private:
  std::uint64_t count_ = 0;
  std::uint64_t next_told_ = 1;
};

}  // namespace kolo
