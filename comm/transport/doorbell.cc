#include "comm/transport/doorbell.h"

#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <string>

#include "comm/base/error.h"

namespace kolo {

bool Doorbell::sleep(Duration limit) noexcept {
  if (!rest_as(kSleeping)) return true;
  const timespec time{.tv_sec = limit.count() / 1'000'000'000,
                      .tv_nsec = limit.count() % 1'000'000'000};
  // The futex is not private, because the ringing thread may be in another process. The call
  // returns at once if the word has changed, and early on a signal; the caller checks again.
  ::syscall(SYS_futex, &state_, FUTEX_WAIT, kSleeping, &time, nullptr, 0);
  return (state_.fetch_and(kNewsMask, std::memory_order_acq_rel) & kNewsMask) != 0;
}

void Doorbell::wake(std::uint32_t rest, std::uint32_t fresh, int event_fd) noexcept {
  constexpr auto kAnyNews = static_cast<std::uint32_t>(News::kSignal);
  constexpr auto kOnlyUrgent =
      static_cast<std::uint32_t>(News::kUrgent) & ~static_cast<std::uint32_t>(News::kMail);
  if (rest == kSleeping) {
    if ((fresh & kAnyNews) != 0)
      ::syscall(SYS_futex, &state_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  } else if ((fresh & (rest == static_cast<std::uint32_t>(Rest::kIdle) ? kOnlyUrgent : kAnyNews)) !=
             0) {
    raise_event(event_fd);
  }
}

FileDescriptor make_event_fd() {
  FileDescriptor fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!fd) {
    throw KoloError(Error{.code = ErrorCode::kResources,
                          .what = std::string("cannot make an event descriptor: ") +
                                  std::strerror(errno) + "; see ulimit -n"});
  }
  return fd;
}

void raise_event(int event_fd) noexcept {
  const std::uint64_t one = 1;
  // Fails only if the count is at its limit; then the descriptor is readable already.
  [[maybe_unused]] const auto written = ::write(event_fd, &one, sizeof one);
}

void drain_event(int event_fd) noexcept {
  std::uint64_t count = 0;
  // Fails only if the descriptor is not readable, which is the desired state.
  [[maybe_unused]] const auto taken = ::read(event_fd, &count, sizeof count);
}

}  // namespace kolo
