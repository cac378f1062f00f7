#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "comm/transport/transport.h"

namespace kolo {

/// The control frames of one group, or of those that found groups, that have arrived at a rank.
/// Peers are ranks of the job.
using ControlInbox = std::deque<ControlFrame>;

/// Sorts the control frames of a rank into those of its job and those of its groups. A frame of a
/// group begins with a byte that no frame of the job has, and the number that the receiver has
/// given to the group:
///
///   0xFF | number of the inbox, 8 bytes | the group's own bytes
///
/// Numbers are never used again, so a frame that comes after its group has ended is dropped.
///
/// Threads: the one that drives the engine.
class ControlSwitch {
 public:
  using Number = std::uint64_t;

  /// The inbox of those that found groups has this number on every rank.
  static constexpr Number kFounders = 0;
  /// Bytes of a group's frame before its own.
  static constexpr std::size_t kHeaderBytes = 1 + sizeof(Number);

  /// Opens an inbox with a new number; the first gets `kFounders`. It outlives the switch or is
  /// closed before.
  Number open(ControlInbox& inbox) {
    inboxes_[next_] = &inbox;
    return next_++;
  }
  void close(Number number) { inboxes_.erase(number); }

  /// Moves the frame of a group into its inbox and returns true; leaves one of the job alone.
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

  /// Replaces `framed` by the frame that puts `bytes` into an inbox of the receiver.
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
  Number next_ = kFounders;
};

}  // namespace kolo
