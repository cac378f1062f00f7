#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "comm/base/mutex.h"

namespace kolo {

/// A lock for short critical sections with little contention: it costs one atomic operation, where
/// a mutex costs two, each with a function call. Lock it with `SpinGuard`.
class KOLO_CAPABILITY("mutex") SpinLock {
 public:
  SpinLock() = default;
  SpinLock(const SpinLock&) = delete;
  SpinLock& operator=(const SpinLock&) = delete;

 private:
  friend class SpinGuard;
  std::atomic<bool> is_held_{false};
};

/// Holds a spin lock during its own lifetime. While the lock is taken, a waiting thread yields its
/// core, perhaps to the holder, and sleeps if that is not enough: a core is never yielded to a
/// thread of lower priority.
class KOLO_SCOPED_CAPABILITY SpinGuard {
 public:
  explicit SpinGuard(SpinLock& lock) KOLO_ACQUIRE(lock) : lock_(lock) {
    for (int tries = 0; lock_.is_held_.exchange(true, std::memory_order_acquire); ++tries) {
      if (tries < kMostYields) {
        ::sched_yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
  }
  ~SpinGuard() KOLO_RELEASE() { lock_.is_held_.store(false, std::memory_order_release); }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  static constexpr int kMostYields = 100;

  SpinLock& lock_;
};

}  // namespace kolo
