#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "comm/transport/tag.h"
#include "comm/transport/transport.h"

namespace kolo {

/// Buckets whose messages need not be received from some iteration on, because all ranks have given
/// them up. Threads: one.
class AbandonedRuns {
 public:
  /// Source and ordinal of `first` are ignored.
  // Packing wraps the fields.
  void add(const Tag& first) { first_.push_back(unpack(pack(first))); }

  bool covers(const Tag& message) const {
    return std::any_of(first_.begin(), first_.end(), [&](const Tag& first) {
      return message.bucket == first.bucket && !is_before(message.iteration, first.iteration);
    });
  }

 private:
  /// Iterations in tags wrap; any two in use are less than half the range apart.
  static bool is_before(std::uint32_t a, std::uint32_t b) {
    return ((a - b) >> (kTagIterationBits - 1) & 1U) != 0;
  }

  std::vector<Tag> first_;
};

/// A receive that waits for its message.
struct PostedReceive {
  std::uint64_t tag = 0;
  std::span<std::byte> data;
  Completion* done = nullptr;
};

/// A complete message that arrived before its receive.
struct UnexpectedMessage {
  std::uint64_t tag = 0;
  std::vector<std::byte> bytes;
};

/// Matches receives and messages of one rank by (peer, packed tag), for transports whose library
/// does no matching.
///
/// Before:  call `take_receive` for a message, and keep the message only if there is no receive for
///          it; call `take_message` for a receive, and post it only if there is no message.
/// Threads: one.
/// Cost:    a scan of what is pending with that peer, which is what a schedule keeps in flight.
class MessageMatcher {
 public:
  explicit MessageMatcher(std::size_t peers) : posted_(peers), unexpected_(peers) {}

  void post(std::size_t peer, const PostedReceive& receive) { posted_[peer].push_back(receive); }
  void keep(std::size_t peer, UnexpectedMessage message) {
    unexpected_[peer].push_back(std::move(message));
  }

  /// Removes and returns the oldest receive posted for this message.
  std::optional<PostedReceive> take_receive(std::size_t peer, std::uint64_t tag) {
    return take(posted_[peer], tag);
  }
  /// Removes and returns the oldest kept message for this receive.
  std::optional<UnexpectedMessage> take_message(std::size_t peer, std::uint64_t tag) {
    return take(unexpected_[peer], tag);
  }

  /// Keeps a receive that can no longer complete, so that `cancel` makes it idle.
  void abandon(const PostedReceive& receive) { abandoned_.push_back(receive.done); }

  /// A kept message that does not belong to an abandoned bucket; null if there is none.
  const UnexpectedMessage* find_stray(const AbandonedRuns& abandoned) const;

  /// Makes every receive idle and drops every message.
  void cancel() noexcept;

 private:
  template <typename Entry>
  static std::optional<Entry> take(std::vector<Entry>& entries, std::uint64_t tag) {
    for (auto it = entries.begin(); it != entries.end(); ++it) {
      if (it->tag != tag) continue;
      std::optional<Entry> found(std::move(*it));
      entries.erase(it);
      return found;
    }
    return std::nullopt;
  }

  std::vector<std::vector<PostedReceive>> posted_;
  std::vector<std::vector<UnexpectedMessage>> unexpected_;
  std::vector<Completion*> abandoned_;
};

/// The error of a message that is longer than the buffer posted for it.
Error message_too_long(int rank, int peer, std::size_t bytes, std::size_t capacity);

/// The error of a message that was still unreceived at the agreed end of the job.
Error stray_message(int rank, const Tag& tag, std::size_t bytes);

}  // namespace kolo
