#pragma once

#include <sched.h>

#include <atomic>

#include "comm/base/thread_annotations.h"

namespace kolo {

/// A lock for a few instructions at a time that several threads seldom want at once: it costs one
/// atomic operation, where a mutex costs two and a call for each. Lock it with `SpinGuard`.
class KOLO_CAPABILITY("mutex") SpinLock {
 public:
  SpinLock() = default;
  SpinLock(const SpinLock&) = delete;
  SpinLock& operator=(const SpinLock&) = delete;

 private:
  friend class SpinGuard;
  std::atomic<bool> is_held_{false};
};

/// Holds a spin lock during its own lifetime. A thread that finds it held leaves its core to
/// others, among them perhaps the one that holds it.
class KOLO_SCOPED_CAPABILITY SpinGuard {
 public:
  explicit SpinGuard(SpinLock& lock) KOLO_ACQUIRE(lock) : lock_(lock) {
    while (lock_.is_held_.exchange(true, std::memory_order_acquire)) ::sched_yield();
  }
  ~SpinGuard() KOLO_RELEASE() { lock_.is_held_.store(false, std::memory_order_release); }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  SpinLock& lock_;
};

}  // namespace kolo
