#include "runtime/engine_thread.h"

#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>

#include <cerrno>
#include <cstring>

#include "comm/base/check.h"

namespace kolo {
namespace {

using std::chrono::steady_clock;

/// While something is pending the coordinator's clock must be looked at now and then.
constexpr std::chrono::milliseconds kPendingPark{50};
/// A device does not ring, so while it works it is asked this often.
constexpr std::chrono::microseconds kDevicePark{20};

timespec to_timespec(std::chrono::nanoseconds time) {
  return {.tv_sec = time.count() / 1'000'000'000, .tv_nsec = time.count() % 1'000'000'000};
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

std::chrono::microseconds default_spin(unsigned cores, int local_size) {
  const bool room = cores >= static_cast<unsigned>(local_size);
  return std::chrono::microseconds(room ? 50 : 0);
}

EngineThread::EngineThread(Engine& engine, Transport& transport, std::chrono::microseconds spin)
    : engine_(engine), transport_(transport), spin_(spin), waiter_(::epoll_create1(EPOLL_CLOEXEC)) {
  const auto fail = [](const char* call) {
    throw KoloError(
        {.code = ErrorCode::kResources,
         .what = std::string(call) + " for the engine thread: " + std::strerror(errno)});
  };
  if (!waiter_) fail("epoll_create1");
  for (int fd : transport_.wake_fds()) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (::epoll_ctl(waiter_.get(), EPOLL_CTL_ADD, fd, &event) != 0) fail("epoll_ctl");
  }
  thread_ = std::thread([this] { run(); });
  ::pthread_setname_np(thread_.native_handle(), "kolo-engine");
}

EngineThread::~EngineThread() { thread_.join(); }

void EngineThread::run() {
  auto last_move = steady_clock::now();
  while (!engine_.ended()) {
    if (engine_.poll()) {
      if (spin_.count() > 0) last_move = steady_clock::now();
    } else if (spin_.count() > 0 && steady_clock::now() - last_move < spin_) {
      relax();
    } else {
      park();
    }
  }
}

void EngineThread::park() {
  if (transport_.arm() && !engine_.has_submissions()) {
    // ppoll takes nanoseconds; an epoll descriptor is readable when one of its own is.
    pollfd waiter{.fd = waiter_.get(), .events = POLLIN, .revents = 0};
    const timespec limit = to_timespec(engine_.device_busy() ? kDevicePark : kPendingPark);
    ::ppoll(&waiter, 1, engine_.idle() ? nullptr : &limit, nullptr);
  }
  transport_.disarm();
}

}  // namespace kolo
