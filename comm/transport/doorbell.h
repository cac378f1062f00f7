#pragma once

#include <atomic>
#include <cstdint>

#include "comm/base/clock.h"
#include "comm/base/unique_handle.h"

namespace kolo {

/// Makes all earlier writes of this thread visible to other threads before its later reads. GCC's
/// warning that the thread sanitizer ignores fences is disabled: this fence only orders atomics.
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

/// Wakes its owner, which waits for data and flags. A ring is one atomic operation on a word in
/// shared memory, and one system call if the owner sleeps and must wake up.
///
///   state      the owner                                          woken by
///   quiet      is awake and polls flags                             -
///   listening  is awake and about to sleep                          -
///   parked     sleeps on an event descriptor                        any news
///   idle       as parked, but waits for no flag or data             urgent news only
///   sleeping   sleeps on this word (futex), in `sleep`              any news
///
/// The word also holds news bits. They stay set until the owner answers them, even while it sleeps:
///
///   ring       adds news                             by any thread, after it has written data
///   signal     rings, unless the owner is quiet      by any thread, after it has set a flag
///   listen     lets signals add news                 by the owner, before its last poll
///   answer     takes all news and becomes quiet      by the owner, before it reads
///   park       sleeps, unless there are news         by the owner
///   unpark     becomes quiet; news stay              by the owner
///
/// All changes are read-modify-writes of one word, so they have one order. After a ring, `park`
/// fails, because it compares the whole word. After `park`, a ring sees that the owner sleeps. So
/// no wake-up is lost and no fence is needed. Only the first news wake the owner (the first urgent
/// news, if it is idle), because it is awake afterwards. A failed `park` orders no memory accesses,
/// so its caller must answer and read again.
///
/// A signal to a quiet owner only reads the word, which therefore stays in the caches of both
/// sides; a write would take as long as the transfer of the flag itself. Fences in `signal` and
/// `listen` ensure that either the signal sees that the owner listens, or the owner sees the flag
/// when it polls after `listen`. Each poll begins with `answer`, so `listen` knows whether the
/// owner has polled.
///
/// A doorbell in zeroed memory is valid and quiet, so it may be in new shared memory.
class Doorbell {
 public:
  enum class News : std::uint32_t {
    kSignal = 0b001,  ///< A flag or counter has changed; see `signal`.
    kMail = 0b011,    ///< A message was sent, or there is room for one.
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

  /// Lets signals add news from now on. Returns true if the owner has listened and answered before;
  /// otherwise it must answer and check flags and counters before it sleeps. Threads: the owner's.
  [[nodiscard]] bool listen() noexcept {
    const std::uint32_t state = state_.load(std::memory_order_relaxed);
    if ((state & kListening) != 0) return (state & kAnswered) != 0;
    state_.fetch_or(kListening, std::memory_order_acq_rel);
    full_fence();
    return false;
  }

  /// Takes the news since the last answer, as bits of News; 0 if there are none. Threads: the
  /// owner's.
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

  /// Marks the owner as asleep. Returns false if there were news, and then the owner must not
  /// sleep. Threads: the owner's.
  [[nodiscard]] bool park(Rest rest) noexcept { return rest_as(static_cast<std::uint32_t>(rest)); }

  /// Marks the owner as awake. Threads: the owner's.
  void unpark() noexcept { state_.fetch_and(kNewsMask, std::memory_order_acq_rel); }

  /// Sleeps until a ring, or until `limit` has passed; returns at once if there are news already.
  /// Returns whether there are news. Works between processes. Threads: the owner's.
  bool sleep(Duration limit) noexcept;

 private:
  static constexpr std::uint32_t kQuiet = 0;
  static constexpr std::uint32_t kSleeping = 0x40;
  static constexpr std::uint32_t kListening = 0x80;
  static constexpr std::uint32_t kAnswered = 0x100;  // answered since `listen`
  static constexpr std::uint32_t kNewsMask = 0x0F;
  static constexpr std::uint32_t kRestMask = 0x70;

  /// Sets the state to `rest`, unless there are news.
  bool rest_as(std::uint32_t rest) noexcept {
    std::uint32_t awake = state_.load(std::memory_order_relaxed) & (kListening | kAnswered);
    return state_.compare_exchange_strong(awake, rest, std::memory_order_acq_rel);
  }
  void wake(std::uint32_t rest, std::uint32_t fresh, int event_fd) noexcept;

  std::atomic<std::uint32_t> state_{kQuiet};
};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// Creates a non-blocking, close-on-exec event descriptor. Errors: KoloError(kResources) if the
/// process has no descriptor left.
FileDescriptor make_event_fd();
/// Makes an event descriptor readable.
void raise_event(int event_fd) noexcept;
/// Makes an event descriptor unreadable again.
void drain_event(int event_fd) noexcept;

}  // namespace kolo
