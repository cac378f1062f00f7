#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "comm/device/bounce_buffer.h"
#include "comm/message/messages.h"

namespace kolo {

/// Messages whose buffers may be in device memory. Such a message is sent from, or received into, a
/// pinned bounce buffer as a host message. Sender and receiver may use different kinds of memory.
///
///   send      copied down ──► submitted ──► done
///   receive   submitted ──► copied up, as much as came ──► done
///
/// Sends are submitted in order: a send waits until earlier ones have been copied from the device.
///
/// Threads: the engine's only.
/// Errors:  KoloError(kInternal) with the device's text, KoloError(kResources).
class BouncedMessages {
 public:
  /// `messages` and `streams` must outlive this object. `streams` is null without a device.
  BouncedMessages(Messages& messages, CopyStreams* streams)
      : messages_(messages), streams_(streams) {}

  /// Submits a message in any memory; see `Messages::submit`. Device memory requires `streams`.
  void submit(const std::shared_ptr<Message>& message);
  void withdraw(const std::shared_ptr<Message>& receive, const Error& error);

  /// Submits sends that have been copied from the device, and completes receives that have been
  /// copied to the device. Returns whether there were any.
  bool poll();
  /// Whether copies are in progress, so that `poll` must be called.
  bool is_copying() const;
  /// Whether sends wait to be submitted.
  bool has_sends() const { return !sends_.empty(); }
  /// Whether sends wait to be submitted or receives are incomplete.
  bool waiting() const { return !sends_.empty() || !receives_.empty(); }

  /// Fails all messages after the job has failed. Before: `Messages::fail_all` was called.
  void fail_all(const Error& error) noexcept;

 private:
  /// The host message that stands for a message in device memory.
  class Bounced;

  std::shared_ptr<BounceBuffer> take_bounce_buffer(std::size_t bytes);

  Messages& messages_;
  CopyStreams* streams_;
  std::deque<std::shared_ptr<Message>> sends_;      // sends not yet submitted, in order
  std::vector<std::shared_ptr<Bounced>> receives_;  // receives in device memory, incomplete
  std::vector<std::shared_ptr<BounceBuffer>> bounce_buffers_;  // unused if it has no other owner
};

}  // namespace kolo
