#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

// Annotations for Clang's thread safety analysis (-Wthread-safety). They state which mutex guards
// which data; the build fails where data is used without its mutex. Other compilers ignore them.
// The analysis knows `Mutex`.

#ifdef __clang__
#define KOLO_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define KOLO_THREAD_ATTRIBUTE(x)
#endif

/// A class whose objects can be held, such as a mutex.
#define KOLO_CAPABILITY(name) KOLO_THREAD_ATTRIBUTE(capability(name))
/// A class that acquires in its constructor and releases in its destructor.
#define KOLO_SCOPED_CAPABILITY KOLO_THREAD_ATTRIBUTE(scoped_lockable)

/// Data that is read and written only while `mutex` is held.
#define KOLO_GUARDED_BY(mutex) KOLO_THREAD_ATTRIBUTE(guarded_by(mutex))
/// A pointer whose target is used only while `mutex` is held.
#define KOLO_PT_GUARDED_BY(mutex) KOLO_THREAD_ATTRIBUTE(pt_guarded_by(mutex))

/// A function, or a lambda, whose caller holds the mutexes.
#define KOLO_REQUIRES(...) KOLO_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
/// A function whose caller does not hold the mutexes, because the function locks them itself.
#define KOLO_EXCLUDES(...) KOLO_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
/// A function that returns with the mutexes held, or without an argument, with `this` held.
#define KOLO_ACQUIRE(...) KOLO_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
/// A function that releases the mutexes, or without an argument, `this`.
#define KOLO_RELEASE(...) KOLO_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))

/// A function that the analysis skips. The comment beside it says why it is safe.
#define KOLO_NO_THREAD_SAFETY_ANALYSIS KOLO_THREAD_ATTRIBUTE(no_thread_safety_analysis)

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
  /// As above, but waits until `deadline` at most. Returns the last value of `predicate()`.
  template <typename Clock, typename Length, typename Predicate>
  bool wait_until(MutexLock& lock, const std::chrono::time_point<Clock, Length>& deadline,
                  const Predicate& predicate) {
    return changed_.wait_until(lock.lock_, deadline, predicate);
  }
  /// As above, but waits for at most `limit`.
  template <typename Rep, typename Period, typename Predicate>
  bool wait_for(MutexLock& lock, const std::chrono::duration<Rep, Period>& limit,
                const Predicate& predicate) {
    return changed_.wait_for(lock.lock_, limit, predicate);
  }

 private:
  std::condition_variable changed_;
};

}  // namespace kolo
