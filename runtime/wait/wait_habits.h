#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "comm/base/clock.h"

namespace kolo {

/// Whether a program waits for an operation as soon as it has begun it: it does if it did so the
/// last time with this key. Then the thread that waits will drive the operation, and no other one
/// need be called for it. A wrong guess costs time, up to `kStandByTime` once, never a result.
///
/// Threads: any.
class WaitHabits {
 public:
  /// To hand work to another thread takes 5 to 20 us, so a wait that comes sooner finds it undone.
  static constexpr std::chrono::microseconds kHandOver{20};

  bool expects_wait(std::uint64_t key) const {
    return are_prompt_[key % kKeys].load(std::memory_order_relaxed);
  }
  /// The wait has begun so long after the operation.
  void waits(std::uint64_t key, Duration after) {
    std::atomic<bool>& is_prompt = are_prompt_[key % kKeys];
    const bool now = after < kHandOver;
    if (is_prompt.load(std::memory_order_relaxed) != now) {
      is_prompt.store(now, std::memory_order_relaxed);
    }
  }

 private:
  static constexpr std::size_t kKeys = 256;  // two that share a place share the habit

  std::array<std::atomic<bool>, kKeys> are_prompt_ = {};
};

}  // namespace kolo
