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

/// The buckets whose messages need not be received from some iteration on, because all ranks have
/// abandoned them. Threads: one.
class AbandonedRuns {
 public:
  /// Adds the bucket and iteration of `first`; source and ordinal are ignored.
  // Packing makes the fields wrap, as in the tags of messages.
  void add(const Tag& first) { first_.push_back(unpack(pack(first))); }

  bool covers(const Tag& message) const {
    return std::any_of(first_.begin(), first_.end(), [&](const Tag& first) {
      return message.bucket == first.bucket && !is_before(message.iteration, first.iteration);
    });
  }

 private:
  /// Compares iterations of tags, which wrap: any two in use differ by less than half the range.
  static bool is_before(std::uint32_t a, std::uint32_t b) {
    return ((a - b) >> (kTagIterationBits - 1) & 1U) != 0;
  }

  std::vector<Tag> first_;
};

/// A receive whose message has not been received yet.
struct PostedReceive {
  std::uint64_t tag = 0;
  std::span<std::byte> data;
  Completion* done = nullptr;
};

/// A complete message whose receive has not been posted yet.
struct UnexpectedMessage {
  std::uint64_t tag = 0;
  std::vector<std::byte> bytes;
};

/// Matches receives and messages of one rank by peer and packed tag, for transports whose library
/// does no matching.
///
/// Before:  for a message, call `take_receive`, and `keep` the message only if there is no receive;
///          for a receive, call `take_message`, and `post` the receive only if there is no message.
/// Threads: one.
/// Cost:    a scan of the pending messages of one peer, of which a schedule has few in flight.
class MessageMatcher {
 public:
  explicit MessageMatcher(std::size_t peers) : posted_(peers), unexpected_(peers) {}

  void post(std::size_t peer, const PostedReceive& receive) { posted_[peer].push_back(receive); }
  void keep(std::size_t peer, UnexpectedMessage message) {
    unexpected_[peer].push_back(std::move(message));
  }

  /// Removes and returns the oldest receive posted for messages with this tag.
  std::optional<PostedReceive> take_receive(std::size_t peer, std::uint64_t tag) {
    return take(posted_[peer], tag);
  }
  /// Removes and returns the oldest kept message with this tag.
  std::optional<UnexpectedMessage> take_message(std::size_t peer, std::uint64_t tag) {
    return take(unexpected_[peer], tag);
  }

  /// Removes a posted receive and makes it idle. Returns false if it is not posted.
  bool cancel(Completion& receive) noexcept;

  /// Keeps a receive that cannot complete any more, until `cancel` makes it idle.
  void abandon(const PostedReceive& receive) { abandoned_.push_back(receive.done); }

  /// Returns a kept message that belongs to no abandoned bucket; null if there is none.
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

/// Returns the error of a message that is longer than the buffer of its receive.
Error message_too_long(int rank, int peer, std::size_t bytes, std::size_t capacity);

/// Returns the error of a message that has no receive at the agreed end of the job.
Error stray_message(int rank, const Tag& tag, std::size_t bytes);

}  // namespace kolo
