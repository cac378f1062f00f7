#pragma once

#include <atomic>
#include <cstdint>

namespace kolo {

/// The right to drive an engine: whoever sits polls it, nobody else touches it. Users' threads take
/// the seat while they wait, the engine's own thread when nobody else does. Beside who sits, the
/// value says whether
///
///   called    the driver must poll again before it leaves: somebody submitted work and left
///   wanted    a user's thread wants the seat of the engine's thread, and sleeps until it leaves
///   watched   the engine's thread sleeps on the transport's descriptors. While the seat is free
///             and watched, the transport is armed; whoever takes the seat then unarms it.
///   awaited   the watchdog sleeps until somebody takes the seat, and is woken then
///   given up  the driver may never leave: nobody sleeps until it does
///
/// All changes are read-modify-writes that succeed, so they have one order: a call falls either
/// before the driver leaves, who then stays, or after, and then finds the seat free and takes it.
///
/// Threads: any.
class Seat {
 public:
  enum class Driver : std::uint32_t { kUser = 1, kEngine = 2 };
  enum class Take : std::uint8_t { kRefused, kTaken, kTakenArmed };
  enum class Leave : std::uint8_t { kLeft, kCalled, kNotWatched };

  /// A user's thread sits down, unless somebody sits.
  Take take() {
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    while (is_free(word)) {
      if (exchange(word, as_word(Driver::kUser) | (word & kWatched))) return take_over(word);
    }
    return Take::kRefused;
  }

  /// The engine's thread, which watches no more, sits down, unless somebody sits.
  Take end_watch() {
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    for (;;) {
      if (is_free(word)) {
        if (exchange(word, as_word(Driver::kEngine))) return take_over(word);
      } else if (exchange(word, word & ~kWatched)) {
        return Take::kRefused;
      }
    }
  }

  /// Calls whoever sits. Returns false if nobody does.
  bool call() {
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    while (!is_free(word)) {
      if (exchange(word, word | kCalled)) return true;
    }
    return false;
  }

  /// If the engine's thread sits, asks it to leave and sleeps until it does; returns false if a
  /// user's thread sits, or the driver is given up.
  bool await_engine() {
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    while ((word & as_word(Driver::kEngine)) != 0) {
      if ((word & kGivenUp) != 0) return false;
      if (exchange(word, word | kWanted)) {
        word_.wait(word | kWanted, std::memory_order_acquire);
        word = word_.load(std::memory_order_acquire);
      }
    }
    return is_free(word);
  }

  /// Gives up whoever sits, who is called, should it come back. Returns false if nobody sits.
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

  /// Sleeps until somebody sits, or `is_over` holds and `wake` is called. Returns false if somebody
  /// sits anyway. Threads: one, the watchdog's.
  bool await_driver(const std::atomic<bool>& is_over) {
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    while (is_free(word)) {
      if (!exchange(word, word | kAwaited)) continue;
      // Seen if it was set before a `wake` that came before the exchange.
      if (!is_over.load(std::memory_order_relaxed)) {
        word_.wait(word | kAwaited, std::memory_order_relaxed);
      }
      return true;
    }
    return false;
  }
  /// Ends `await_driver`.
  void wake() {
    word_.fetch_and(~kAwaited, std::memory_order_acq_rel);
    word_.notify_all();
  }

  /// Threads: the driver's.
  bool is_wanted() const { return (word_.load(std::memory_order_relaxed) & kWanted) != 0; }
  bool is_watched() const { return (word_.load(std::memory_order_relaxed) & kWatched) != 0; }

  /// Gets up and ends the watch, if there was one. Threads: the driver's.
  Leave leave() { return leave_as(kNobody, 0); }
  /// Leaves as a user's thread that has armed the transport again, so that the watch goes on.
  Leave leave_watched() { return leave_as(kWatched, kWatched); }
  /// Leaves as the engine's thread, which begins a watch with the transport armed.
  Leave leave_to_watch() { return leave_as(kWatched, 0); }

 private:
  static constexpr std::uint32_t kNobody = 0;
  static constexpr std::uint32_t kDriver = 3;
  static constexpr std::uint32_t kCalled = 4;
  static constexpr std::uint32_t kWanted = 8;
  static constexpr std::uint32_t kWatched = 16;
  static constexpr std::uint32_t kAwaited = 32;
  static constexpr std::uint32_t kGivenUp = 64;

  static constexpr std::uint32_t as_word(Driver driver) {
    return static_cast<std::uint32_t>(driver);
  }
  static constexpr bool is_free(std::uint32_t word) { return (word & kDriver) == 0; }
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
