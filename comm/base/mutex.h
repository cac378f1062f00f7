#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "comm/base/thread_annotations.h"

namespace kolo {

/// std::mutex with the annotations that libstdc++ lacks, so that Clang can check KOLO_GUARDED_BY.
/// Lock it with `MutexLock`.
class KOLO_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

/// Holds a mutex during its own lifetime.
class KOLO_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) KOLO_ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  ~MutexLock() KOLO_RELEASE() {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  friend class ConditionVariable;
  std::unique_lock<std::mutex> lock_;
};

/// std::condition_variable for `Mutex`. Give a predicate as a lambda with KOLO_REQUIRES(mutex),
/// because the analysis checks each function on its own.
class ConditionVariable {
 public:
  void notify_one() { changed_.notify_one(); }
  void notify_all() { changed_.notify_all(); }

  /// Returns once `predicate()` holds. The mutex is released only while the thread sleeps.
  template <typename Predicate>
  void wait(MutexLock& lock, const Predicate& predicate) {
    changed_.wait(lock.lock_, predicate);
  }
  /// The same, until `deadline` at most. Returns the last value of `predicate()`.
  template <typename Clock, typename Length, typename Predicate>
  bool wait_until(MutexLock& lock, const std::chrono::time_point<Clock, Length>& deadline,
                  const Predicate& predicate) {
    return changed_.wait_until(lock.lock_, deadline, predicate);
  }
  /// The same for at most `limit`.
  template <typename Rep, typename Period, typename Predicate>
  bool wait_for(MutexLock& lock, const std::chrono::duration<Rep, Period>& limit,
                const Predicate& predicate) {
    return changed_.wait_for(lock.lock_, limit, predicate);
  }

 private:
  std::condition_variable changed_;
};

}  // namespace kolo
