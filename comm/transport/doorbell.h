#pragma once

#include <atomic>
#include <cstdint>

#include "comm/base/clock.h"
#include "comm/base/unique_handle.h"

namespace kolo {

/// Makes all that this thread has written visible to others before it reads anything else. The
/// thread sanitizer knows no fences, and need not where they order atomics only.
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

/// How a peer tells the owner of this word that something has arrived: one atomic
/// operation while the owner is awake, one system call more when it sleeps and wants to know.
///
///   state      the owner                                         woken by
///   quiet      is awake, and looks at flags by itself            -
///   listening  is awake, and about to rest                       -
///   parked     sleeps on an event descriptor                     any news
///   idle       the same, and waits for nothing                   urgent news only
///   sleeping   sleeps on this word (futex), in `sleep`           any news
///
/// News are bits beside the state, which stay until the owner answers them, asleep or not:
///
///   ring       adds news                           by anybody, after writing what it announces
///   signal     rings, unless the owner is quiet    by anybody, after setting a flag
///   listen     lets signals add news               by the owner, before it looks once more
///   answer     takes all news, and is quiet again  by the owner, before it reads
///   park       rests, unless there are news        by the owner
///   unpark     is quiet again; news stay           by the owner
///
/// All changes are read-modify-writes of one word, so they have one order: a ring falls either
/// before `park`, which then fails because it compares the whole word, or after it, and then sees
/// who sleeps. No wake-up is lost and no fence is needed. Only the first news wake (for an idle
/// owner: the first urgent ones), because the sleeper is awake from then on. A failed exchange
/// of `park` orders nothing; its caller must not rely on what it saw, but answer and read again.
///
/// A signal to a quiet owner only reads the word, which then stays in the caches of both: to write
/// it would take it from the owner's, for as long as the flag itself takes to arrive. A fence in
/// `signal` and one in `listen` see to it that either the signal finds the owner listening, or the
/// look after `listen` finds the flag. Each look begins with `answer`, so `listen` knows whether
/// there was one.
///
/// All zeroes is a valid, quiet doorbell: it may live in fresh shared memory.
class Doorbell {
 public:
  enum class News : std::uint32_t {
    kSignal = 0b001,  ///< A flag or counter has a new value; see `signal`.
    kMail = 0b011,    ///< A message has moved, or there is room for one.
    kUrgent = 0b111,  ///< A message that even an idle owner must read.
  };
  enum class Rest : std::uint32_t { kParked = 0x10, kIdle = 0x20 };

  /// Wakes the owner where it must. Threads: any.
  void ring(News news, int event_fd) noexcept {
    const auto bits = static_cast<std::uint32_t>(news);
    const std::uint32_t before = state_.fetch_or(bits, std::memory_order_acq_rel);
    const std::uint32_t rest = before & kRestMask;
    if (rest != 0) wake(rest, bits & ~before, event_fd);
  }

  /// A flag or counter has a new value. Threads: any.
  void signal(int event_fd) noexcept {
    full_fence();
    const std::uint32_t state = state_.load(std::memory_order_relaxed);
    if ((state & (kRestMask | kListening)) != 0) ring(News::kSignal, event_fd);
  }

  /// From now on signals add news. Returns whether they did so at the last `answer`; if not, the
  /// owner answers and looks at what they announce before it rests. Threads: the owner's.
  [[nodiscard]] bool listen() noexcept {
    const std::uint32_t state = state_.load(std::memory_order_relaxed);
    if ((state & kListening) != 0) return (state & kAnswered) != 0;
    state_.fetch_or(kListening, std::memory_order_acq_rel);
    full_fence();
    return false;
  }

  /// The rings since the last answer, as bits of News; 0 if there were none. Threads: the owner's.
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

  /// Returns false if somebody rang since the last `answer`. Threads: the owner's.
  [[nodiscard]] bool park(Rest rest) noexcept { return rest_as(static_cast<std::uint32_t>(rest)); }

  /// Threads: the owner's.
  void unpark() noexcept { state_.fetch_and(kNewsMask, std::memory_order_acq_rel); }

  /// Sleeps until somebody rings or `limit` has passed; not at all if somebody rang since the last
  /// `answer`. Returns whether there are news. Works between processes. Threads: the owner's.
  bool sleep(Duration limit) noexcept;

 private:
  static constexpr std::uint32_t kQuiet = 0;
  static constexpr std::uint32_t kSleeping = 0x40;
  static constexpr std::uint32_t kListening = 0x80;
  static constexpr std::uint32_t kAnswered = 0x100;  // since it has been listening
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
