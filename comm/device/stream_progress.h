#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "comm/base/error.h"

namespace kolo {

/// How far a host stream has come: shared by the stream, the events recorded on it and the waits
/// for them, which may outlive it.
///
/// Threads: whoever runs the stream writes; any reads. What ran before `complete_one` is visible to
///          whoever sees `reached` say so, and nothing else orders anything.
class StreamProgress {
 public:
  void complete_one() { completed_.fetch_add(1, std::memory_order_release); }

  /// The stream runs nothing any more; at most once.
  void fail(Error error) {
    failure_ = std::move(error);
    failed_.store(true, std::memory_order_release);
  }
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// Errors: the KoloError that `fail` was told of, if it was.
  void throw_if_failed() const {
    if (failed()) throw KoloError(*failure_);
  }

  /// Whether the stream's first `position` operations are complete.
  /// Errors: KoloError if they never will be.
  bool reached(std::uint64_t position) const {
    if (completed_.load(std::memory_order_acquire) >= position) return true;
    if (!failed()) return false;
    if (completed_.load(std::memory_order_acquire) >= position) return true;  // failed behind it
    throw KoloError(*failure_);
  }

 private:
  std::atomic<std::uint64_t> completed_{0};
  std::atomic<bool> failed_{false};
  std::optional<Error> failure_;
};

}  // namespace kolo
