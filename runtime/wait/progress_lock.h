#pragma once

#include <atomic>
#include <cstdint>

namespace kolo {

/// The lock for driving the engines: only its holder, the driving thread, may poll them. Users'
/// threads take the lock while they wait; the engine's own thread takes it when no other thread
/// does. Besides the kind of the holder, the value has these flags:
///
///   called    the holder must poll again before it leaves: a thread submitted work and left
///   wanted    a user's thread wants the lock of the engine's thread, and sleeps until it leaves
///   watched   the engine's thread sleeps on the transport's descriptors. While the lock is free
///             and watched, the transport is armed; the next holder disarms it.
///   awaited   the watchdog sleeps until a thread takes the lock, which wakes it
///   given up the holder may never leave, so no thread sleeps until it leaves
///
/// All changes are successful read-modify-writes, so they have one order. If a call comes before
/// the holder leaves, the holder stays; if it comes later, the caller finds the lock free and takes
/// it.
///
/// Threads: any.
class ProgressLock {
 public:
  enum class Holder : std::uint32_t { kUser = 1, kEngine = 2 };
  enum class Take : std::uint8_t { kRefused, kTaken, kTakenArmed };
  enum class Leave : std::uint8_t { kLeft, kCalled, kNotWatched };

  /// A user's thread takes the lock, unless it is taken.
  Take take() {
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    while (is_free(word)) {
      if (exchange(word, as_word(Holder::kUser) | (word & kWatched))) return take_over(word);
    }
    return Take::kRefused;
  }

  /// Takes the lock for the engine's thread, which has stopped watching, unless another thread has
  /// it.
  Take end_watch() {
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    for (;;) {
      if (is_free(word)) {
        if (exchange(word, as_word(Holder::kEngine))) return take_over(word);
      } else if (exchange(word, word & ~kWatched)) {
        return Take::kRefused;
      }
    }
  }

  /// Asks the holder to poll again before it leaves. Returns false if the lock is free.
  bool call() {
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    while (!is_free(word)) {
      if (exchange(word, word | kCalled)) return true;
    }
    return false;
  }

  /// If the engine's thread has the lock, asks it to leave and sleeps until it does; returns false
  /// if a user's thread has the lock, or the holder is given up.
  bool await_engine() {
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    while ((word & as_word(Holder::kEngine)) != 0) {
      if ((word & kGivenUp) != 0) return false;
      if (exchange(word, word | kWanted)) {
        word_.wait(word | kWanted, std::memory_order_acquire);
        word = word_.load(std::memory_order_acquire);
      }
    }
    return is_free(word);
  }

  /// Gives up the holder, and sets `called` in case the holder returns. Returns false if the lock
  /// is free.
  bool give_up() {
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    while (!is_free(word)) {
      if (!exchange(word, word | kGivenUp | kCalled)) continue;
      word_.notify_all();
      return true;
    }
    return false;
  }

  bool is_taken() const { return !is_free(word_.load(std::memory_order_relaxed)); }

  /// Sleeps until a thread takes the lock, or until `is_over` holds and `wake` is called. Returns
  /// false if the lock already is taken. Threads: one, the watchdog's.
  bool await_holder(const std::atomic<bool>& is_over) {
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    while (is_free(word)) {
      if (!exchange(word, word | kAwaited)) continue;
      // A store before a `wake` that precedes the exchange is visible here.
      if (!is_over.load(std::memory_order_relaxed)) {
        word_.wait(word | kAwaited, std::memory_order_relaxed);
      }
      return true;
    }
    return false;
  }
  /// Ends `await_holder`.
  void wake() {
    word_.fetch_and(~kAwaited, std::memory_order_acq_rel);
    word_.notify_all();
  }

  /// Threads: the holder's.
  bool is_wanted() const { return (word_.load(std::memory_order_relaxed) & kWanted) != 0; }
  bool is_watched() const { return (word_.load(std::memory_order_relaxed) & kWatched) != 0; }

  /// Frees the lock and ends the watch, if there was one. Threads: the holder's.
  Leave leave() { return leave_as(kNobody, 0); }
  /// Frees the lock and continues the watch. A user's thread must have armed the transport again.
  Leave leave_watched() { return leave_as(kWatched, kWatched); }
  /// Frees the lock and begins a watch; for the engine's thread, which has armed the transport.
  Leave leave_to_watch() { return leave_as(kWatched, 0); }

 private:
  static constexpr std::uint32_t kNobody = 0;
  static constexpr std::uint32_t kHolder = 3;
  static constexpr std::uint32_t kCalled = 4;
  static constexpr std::uint32_t kWanted = 8;
  static constexpr std::uint32_t kWatched = 16;
  static constexpr std::uint32_t kAwaited = 32;
  static constexpr std::uint32_t kGivenUp = 64;

  static constexpr std::uint32_t as_word(Holder holder) {
    return static_cast<std::uint32_t>(holder);
  }
  static constexpr bool is_free(std::uint32_t word) { return (word & kHolder) == 0; }
  Take take_over(std::uint32_t free) {
    if ((free & kAwaited) != 0) word_.notify_all();
    return (free & kWatched) != 0 ? Take::kTakenArmed : Take::kTaken;
  }

  bool exchange(std::uint32_t& expected, std::uint32_t desired) {
    return word_.compare_exchange_weak(expected, desired, std::memory_order_acq_rel,
                                       std::memory_order_relaxed);
  }

  Leave leave_as(std::uint32_t left, std::uint32_t required) {
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    for (;;) {
      if ((word & required) != required) return Leave::kNotWatched;
      if ((word & kCalled) != 0) {
        if (exchange(word, word & ~kCalled)) return Leave::kCalled;
      } else if (exchange(word, left)) {
        if ((word & kWanted) != 0) word_.notify_all();
        return Leave::kLeft;
      }
    }
  }

  std::atomic<std::uint32_t> word_{kNobody};
};

}  // namespace kolo
