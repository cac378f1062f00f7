#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

// Annotations for Clang's thread safety analysis (-Wthread-safety). They state which `Mutex` guards
// which data; the build fails if data is used without its mutex. Other compilers ignore them.

#ifdef __clang__
#define KOLO_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define KOLO_THREAD_ATTRIBUTE(x)
#endif

/// Marks a class whose objects can be locked, such as a mutex.
#define KOLO_CAPABILITY(name) KOLO_THREAD_ATTRIBUTE(capability(name))
/// Marks a class that locks in its constructor and unlocks in its destructor.
#define KOLO_SCOPED_CAPABILITY KOLO_THREAD_ATTRIBUTE(scoped_lockable)

/// Marks data that is read and written only while `mutex` is held.
#define KOLO_GUARDED_BY(mutex) KOLO_THREAD_ATTRIBUTE(guarded_by(mutex))

/// Marks a function or lambda whose caller must hold the mutexes.
#define KOLO_REQUIRES(...) KOLO_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
/// Marks a function whose caller must not hold the mutexes, because the function locks them.
#define KOLO_EXCLUDES(...) KOLO_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
/// Marks a function that returns with the mutexes locked (`this` if no argument is given).
#define KOLO_ACQUIRE(...) KOLO_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
/// Marks a function that unlocks the mutexes (`this` if no argument is given).
#define KOLO_RELEASE(...) KOLO_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))

/// Marks a function that the analysis skips. A comment there states why the function is safe.
#define KOLO_NO_THREAD_SAFETY_ANALYSIS KOLO_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace kolo {

/// A std::mutex with the annotations that KOLO_GUARDED_BY needs. Lock it with `MutexLock`.
class KOLO_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

/// Holds a mutex for the lifetime of this object.
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

/// A condition variable for `Mutex`. Annotate a predicate lambda with KOLO_REQUIRES(mutex), because
/// the analysis checks each function separately.
class ConditionVariable {
 public:
  void notify_one() { changed_.notify_one(); }
  void notify_all() { changed_.notify_all(); }

  /// Blocks until `predicate()` is true. The mutex is unlocked only while the thread sleeps.
  template <typename Predicate>
  void wait(MutexLock& lock, const Predicate& predicate) {
    changed_.wait(lock.lock_, predicate);
  }
  /// Blocks until `predicate()` is true or `deadline` has passed. Returns its last value.
  template <typename Clock, typename Length, typename Predicate>
  bool wait_until(MutexLock& lock, const std::chrono::time_point<Clock, Length>& deadline,
                  const Predicate& predicate) {
    return changed_.wait_until(lock.lock_, deadline, predicate);
  }
  /// Blocks until `predicate()` is true, for at most `limit`. Returns its last value.
  template <typename Rep, typename Period, typename Predicate>
  bool wait_for(MutexLock& lock, const std::chrono::duration<Rep, Period>& limit,
                const Predicate& predicate) {
    return changed_.wait_for(lock.lock_, limit, predicate);
  }

 private:
  std::condition_variable changed_;
};

}  // namespace kolo
