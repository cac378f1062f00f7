#pragma once

#include <atomic>
#include <cstdint>

#include "comm/base/clock.h"
#include "comm/base/unique_handle.h"

namespace kolo {

/// Makes all earlier writes of this thread visible to others before its later reads. The thread
/// sanitizer does not support fences, and does not need them where they only order atomics.
inline void full_fence() noexcept {
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
  std::atomic_thread_fence(std::memory_order_seq_cst);
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
}

/// Tells the owner of this word that something has arrived: one atomic operation while the owner is
/// awake, and one more system call if it sleeps and wants to be woken.
///
///   state      the owner                                         woken by
///   quiet      is awake, and polls flags by itself             -
///   listening  is awake, and about to rest                       -
///   parked     sleeps on an event descriptor                     any news
///   idle       as parked, and waits for no flag or data        urgent news only
///   sleeping   sleeps on this word (futex), in `sleep`           any news
///
/// News are bits beside the state, which stay until the owner answers them, even while it sleeps:
///
///   ring       adds news                           by any thread, after writing the data
///   signal     rings, unless the owner is quiet    by any thread, after setting a flag
///   listen     lets signals add news               by the owner, before its last look
///   answer     takes all news, and is quiet again  by the owner, before it reads
///   park       rests, unless there are news        by the owner
///   unpark     is quiet again; news stay           by the owner
///
/// All changes are read-modify-writes of one word, so they have one order: a ring comes either
/// before `park`, which then fails because it compares the whole word, or after it, and then sees
/// who sleeps. No wake-up is lost and no fence is needed. Only the first news wake the owner (an
/// idle owner: the first urgent ones), because it is awake from then on. A failed exchange in
/// `park` orders nothing; its caller must not rely on what it saw, but answer and read again.
///
/// A signal to a quiet owner only reads the word, so that it stays in the caches of both sides: a
/// write would take it from the owner's cache, for as long as the flag itself takes to arrive.
/// Fences in `signal` and `listen` ensure that either the signal finds the owner listening, or the
/// owner's look after `listen` finds the flag. Each look begins with `answer`, so `listen` knows
/// whether there was one.
///
/// All zeroes is a valid, quiet doorbell, so it may live in fresh shared memory.
class Doorbell {
 public:
  enum class News : std::uint32_t {
    kSignal = 0b001,  ///< A flag or counter has a new value; see `signal`.
    kMail = 0b011,    ///< A message has moved, or there is room for one.
    kUrgent = 0b111,  ///< A message that even an idle owner must read.
  };
  enum class Rest : std::uint32_t { kParked = 0x10, kIdle = 0x20 };

  /// Adds news, and wakes the owner if necessary. Threads: any.
  void ring(News news, int event_fd) noexcept {
    const auto bits = static_cast<std::uint32_t>(news);
    const std::uint32_t before = state_.fetch_or(bits, std::memory_order_acq_rel);
    const std::uint32_t rest = before & kRestMask;
    if (rest != 0) wake(rest, bits & ~before, event_fd);
  }

  /// Announces a new value of a flag or counter. Threads: any.
  void signal(int event_fd) noexcept {
    full_fence();
    const std::uint32_t state = state_.load(std::memory_order_relaxed);
    if ((state & (kRestMask | kListening)) != 0) ring(News::kSignal, event_fd);
  }

  /// Lets signals add news from now on. Returns whether they did so at the last `answer`; if not,
  /// the owner answers and checks flags and counters before it rests. Threads: the owner's.
  [[nodiscard]] bool listen() noexcept {
    const std::uint32_t state = state_.load(std::memory_order_relaxed);
    if ((state & kListening) != 0) return (state & kAnswered) != 0;
    state_.fetch_or(kListening, std::memory_order_acq_rel);
    full_fence();
    return false;
  }

  /// The news since the last answer, as bits of News; 0 if there are none. Threads: the owner's.
  std::uint32_t answer() noexcept {
    const std::uint32_t state = state_.load(std::memory_order_relaxed);
    if ((state & kNewsMask) != 0) {
      return state_.exchange(kQuiet, std::memory_order_acq_rel) & kNewsMask;
    }
    if ((state & (kListening | kAnswered)) == kListening) {
      state_.fetch_or(kAnswered, std::memory_order_acq_rel);
    }
    return 0;
  }

  /// Returns false if there was a ring since the last `answer`. Threads: the owner's.
  [[nodiscard]] bool park(Rest rest) noexcept { return rest_as(static_cast<std::uint32_t>(rest)); }

  /// Threads: the owner's.
  void unpark() noexcept { state_.fetch_and(kNewsMask, std::memory_order_acq_rel); }

  /// Sleeps until a ring, or until `limit` has passed; not at all if there was a ring since the
  /// last `answer`. Returns whether there are news. Works between processes. Threads: the owner's.
  bool sleep(Duration limit) noexcept;

 private:
  static constexpr std::uint32_t kQuiet = 0;
  static constexpr std::uint32_t kSleeping = 0x40;
  static constexpr std::uint32_t kListening = 0x80;
  static constexpr std::uint32_t kAnswered = 0x100;  // since the owner has been listening
  static constexpr std::uint32_t kNewsMask = 0x0F;
  static constexpr std::uint32_t kRestMask = 0x70;

  /// Rests, unless there are news.
  bool rest_as(std::uint32_t rest) noexcept {
    std::uint32_t awake = state_.load(std::memory_order_relaxed) & (kListening | kAnswered);
    return state_.compare_exchange_strong(awake, rest, std::memory_order_acq_rel);
  }
  void wake(std::uint32_t rest, std::uint32_t fresh, int event_fd) noexcept;

  std::atomic<std::uint32_t> state_{kQuiet};
};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// A new non-blocking, close-on-exec event descriptor.
/// Errors: KoloError(kResources) when the process is out of descriptors.
FileDescriptor make_event_fd();
/// Makes an event descriptor readable.
void raise_event(int event_fd) noexcept;
/// Makes an event descriptor unreadable again.
void drain_event(int event_fd) noexcept;

}  // namespace kolo
