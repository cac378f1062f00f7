#include "runtime/engine_thread.h"

#include <pthread.h>
#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "comm/base/check.h"

namespace kolo {
namespace {

using std::chrono::steady_clock;

/// While something is pending the coordinator's clock must be looked at now and then.
constexpr int kPendingParkMs = 50;

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
    std::array<epoll_event, 8> events{};
    ::epoll_wait(waiter_.get(), events.data(), static_cast<int>(events.size()),
                 engine_.idle() ? -1 : kPendingParkMs);
  }
  transport_.disarm();
}

}  // namespace kolo
