#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "comm/device/pinned_mirror.h"
#include "comm/message/messages.h"

namespace kolo {

/// Messages whose buffers may be in device memory: those travel between pinned mirrors, as messages
/// of the host. Kinds of memory may differ between sender and receiver, which do not know of each
/// other's.
///
///   send      copied down ──► submitted ──► over
///   receive   submitted ──► copied up, as much as came ──► over
///
/// A send keeps its place: those behind it wait until it has been copied down.
///
/// Threads: the engine's.
/// Errors:  KoloError(kInternal) with the device's text, KoloError(kResources).
class MirroredMessages {
 public:
  /// Both outlive it. `lane`: null without a device.
  MirroredMessages(Messages& messages, CopyLane* lane) : messages_(messages), lane_(lane) {}

  /// As those of `Messages`, for any memory. Before: in device memory only with a device.
  void submit(const std::shared_ptr<Message>& message);
  void withdraw(const std::shared_ptr<Message>& receive, const Error& error);

  /// Submits what has been copied down, and answers what has been copied up. Returns whether there
  /// was any.
  bool poll();
  /// Copies are under way, which must be polled for.
  bool is_copying() const;
  /// Something is to be sent yet.
  bool has_sends() const { return !sends_.empty(); }
  /// Something is in its hands.
  bool waiting() const { return !sends_.empty() || !receives_.empty(); }

  /// The job has failed. Before: so have all messages of the host.
  void fail_all(const Error& error) noexcept;

 private:
  /// A message of the host that stands for one in device memory.
  class Mirrored;

  std::shared_ptr<PinnedMirror> take_mirror(std::size_t bytes);

  Messages& messages_;
  CopyLane* lane_;
  std::deque<std::shared_ptr<Message>> sends_;          // not submitted yet, in their order
  std::vector<std::shared_ptr<Mirrored>> receives_;     // not answered yet
  std::vector<std::shared_ptr<PinnedMirror>> mirrors_;  // those that nobody else has are unused
};

}  // namespace kolo
