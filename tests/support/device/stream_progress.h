#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "comm/base/error.h"

namespace kolo {

/// Progress of a host stream: shared by the stream, the events recorded on it and the waits for
/// them, which may outlive it.
///
/// Threads: the thread that runs the stream writes; any thread reads. Everything that ran before
///          `complete_one` is visible after `reached` has returned true; nothing else gives an
///          order.
class StreamProgress {
 public:
  void complete_one() { completed_.fetch_add(1, std::memory_order_release); }

  /// The stream will run nothing more. Call it at most once.
  void fail(Error error) {
    failure_ = std::move(error);
    failed_.store(true, std::memory_order_release);
  }
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// Errors: the KoloError passed to `fail`, if there was one.
  void throw_if_failed() const {
    if (failed()) throw KoloError(*failure_);
  }

  /// True if the first `position` operations of the stream are complete. Errors: KoloError if they
  /// never will be.
  bool reached(std::uint64_t position) const {
    if (completed_.load(std::memory_order_acquire) >= position) return true;
    if (!failed()) return false;
    if (completed_.load(std::memory_order_acquire) >= position) return true;  // failed after it
    throw KoloError(*failure_);
  }

 private:
  std::atomic<std::uint64_t> completed_{0};
  std::atomic<bool> failed_{false};
  std::optional<Error> failure_;
};

}  // namespace kolo
