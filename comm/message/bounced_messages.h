#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "comm/device/bounce_buffer.h"
#include "comm/message/messages.h"

namespace kolo {

/// Messages whose buffers may be in device memory. Their data travels between pinned bounce
/// buffers, as messages of the host. Sender and receiver may use different kinds of memory; neither
/// knows the other's.
///
///   send      copied down ──► submitted ──► done
///   receive   submitted ──► copied up, as much as came ──► done
///
/// Sends stay in order: later ones wait until an earlier one has been copied down.
///
/// Threads: the engine's.
/// Errors:  KoloError(kInternal) with the device's text, KoloError(kResources).
class BouncedMessages {
 public:
  /// `messages` and `streams` outlive it. `streams`: null without a device.
  BouncedMessages(Messages& messages, CopyStreams* streams)
      : messages_(messages), streams_(streams) {}

  /// As `Messages::submit`, for any memory. Before: device memory only with a device.
  void submit(const std::shared_ptr<Message>& message);
  void withdraw(const std::shared_ptr<Message>& receive, const Error& error);

  /// Submits messages that have been copied down, and answers those copied up. Returns whether
  /// there were any.
  bool poll();
  /// Whether copies are in progress, which must be polled.
  bool is_copying() const;
  /// Whether a send has not been submitted yet.
  bool has_sends() const { return !sends_.empty(); }
  /// Whether a message is in progress here.
  bool waiting() const { return !sends_.empty() || !receives_.empty(); }

  /// Fails all messages after the job has failed. Before: all messages of the host have failed.
  void fail_all(const Error& error) noexcept;

 private:
  /// A message of the host on behalf of a message in device memory.
  class Bounced;

  std::shared_ptr<BounceBuffer> take_bounce_buffer(std::size_t bytes);

  Messages& messages_;
  CopyStreams* streams_;
  std::deque<std::shared_ptr<Message>> sends_;      // not submitted yet, in order
  std::vector<std::shared_ptr<Bounced>> receives_;  // not answered yet
  std::vector<std::shared_ptr<BounceBuffer>>
      bounce_buffers_;  // a bounce buffer without other owners is unused
};

}  // namespace kolo
