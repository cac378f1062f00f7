#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "comm/base/mutex.h"

namespace kolo {

/// A lock for short critical sections with little contention. It costs one atomic
/// read-modify-write; a mutex costs two, each with a function call. Lock it with `SpinGuard`.
class KOLO_CAPABILITY("mutex") SpinLock {
 public:
  SpinLock() = default;
  SpinLock(const SpinLock&) = delete;
  SpinLock& operator=(const SpinLock&) = delete;

 private:
  friend class SpinGuard;
  std::atomic<bool> is_held_{false};
};

/// Holds a spin lock for the lifetime of this object. A waiting thread first yields its core. If
/// that does not help, it sleeps, because yielding never runs a holder of lower priority.
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
