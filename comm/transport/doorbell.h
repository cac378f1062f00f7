#pragma once

#include <atomic>
#include <cstdint>

#include "comm/base/unique_handle.h"

namespace kolo {

/// How a peer tells the owner of this word that something is there to be looked at, at the price of
/// one atomic exchange while the owner is awake and one `eventfd` write when it sleeps.
///
///   ring     any state -> rung       by anybody, after writing what the owner shall see
///   answer   rung      -> quiet      by the owner, before looking
///   park     quiet     -> parked     by the owner; refused when rung since the last answer
///   unpark   parked    -> quiet      by the owner
///
/// All changes are read-modify-writes of one word, so they have one order: a ring falls either
/// before `park`, which then refuses, or after it, and then sees that a wake-up is due. No wake-up
/// is lost and no fence is needed. All zeroes is a valid, quiet doorbell: it may live in fresh
/// shared memory.
class Doorbell {
 public:
  /// Returns whether the owner sleeps, so that the caller must wake it. Threads: any.
  [[nodiscard]] bool ring() noexcept {
    return state_.exchange(kRung, std::memory_order_acq_rel) == kParked;
  }

  /// Returns whether somebody rang. Threads: the owner's.
  bool answer() noexcept {
    if (state_.load(std::memory_order_relaxed) != kRung) return false;
    state_.exchange(kQuiet, std::memory_order_acq_rel);
    return true;
  }

  /// Returns false if somebody rang since the last `answer`. Threads: the owner's.
  [[nodiscard]] bool park() noexcept {
    std::uint32_t expected = kQuiet;
    return state_.compare_exchange_strong(expected, kParked, std::memory_order_acq_rel);
  }

  /// Threads: the owner's.
  void unpark() noexcept {
    std::uint32_t expected = kParked;
    state_.compare_exchange_strong(expected, kQuiet, std::memory_order_acq_rel);
  }

 private:
  static constexpr std::uint32_t kQuiet = 0;
  static constexpr std::uint32_t kRung = 1;
  static constexpr std::uint32_t kParked = 2;

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
