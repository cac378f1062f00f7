#include "runtime/wait/progress_engine.h"

#include <pthread.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <utility>

#include "comm/base/log.h"

namespace kolo {
namespace {

/// Longest sleep while a device works, because a device does not wake the driving thread.
constexpr Duration kDeviceSleep = std::chrono::microseconds(20);
/// Sleep limit of an idle engine, which sleeps until it is woken.
constexpr Duration kNoLimit = Duration::max();

/// Returns the longest time that the next sleep may take.
Duration sleep_limit(const Pollable& engines) {
  if (engines.device_busy()) return kDeviceSleep;
  return engines.idle() ? kNoLimit : kPendingSleep;
}

}  // namespace

void AbortedWaiters::enter(Place& place) {
  const MutexLock lock(mutex_);
  places_.push_back(&place);
}

void AbortedWaiters::leave(Place& place) {
  const MutexLock lock(mutex_);
  std::erase(places_, &place);
}

void AbortedWaiters::release(const Error& error) {
  const MutexLock lock(mutex_);
  if (is_released()) return;
  error_ = error;
  is_released_.store(true, std::memory_order_release);
  for (Place* place : places_) {
    // After this lock, the waiter either sleeps, and is notified, or sees `is_released_`.
    { const MutexLock asleep(place->mutex_); }
    place->changed_.notify_all();
  }
}

void AbortedWaiters::throw_if_released() const {
  if (is_released()) throw KoloError(*error_);
}

ProgressEngine::ProgressEngine(Pollable& engines, Transport& transport, const WaitPolicy& policy,
                               UserThreads threads, OutOfBandAbort* listener)
    : engines_(engines),
      transport_(transport),
      policy_(policy),
      threads_(std::move(threads)),
      listener_(listener),
      call_fd_(make_event_fd()) {
  std::vector<int> fds = transport_.wake_fds();
  fds.push_back(call_fd_.get());
  if (listener_ != nullptr) fds.push_back(listener_->fd());
  for (const int fd : fds) watched_.push_back({.fd = fd, .events = POLLIN, .revents = 0});
}

/// Calls a function of the transport; an exception ends the job. Threads: the driving thread's.
template <typename Call>
void ProgressEngine::guard(const Call& call) noexcept {
  if (Pulse* const pulse = engines_.pulse()) pulse->beat(EngineVerb::kWait);
  try {
    call();
  } catch (...) {
    engines_.fail_with_exception(EngineVerb::kWait);
  }
}

/// Ends the job if a rank on another node has reported by the listener that it is stuck.
void ProgressEngine::answer_listener() {
  if (listener_ == nullptr) return;
  guard([&] {
    std::optional<Error> error = listener_->answer();
    if (!error) return;
    log::report(*error);
    engines_.abort(std::move(*error));
  });
}

// --- Users' threads -----------------------------------------------------------------------------

bool ProgressEngine::try_acquire() {
  const ProgressLock::Take take = progress_lock_.take();
  if (take == ProgressLock::Take::kRefused) return false;
  if (take == ProgressLock::Take::kTakenArmed) unarm();
  drives_.store(drives_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  spinner_.renew();
  return true;
}

bool ProgressEngine::acquire() {
  while (!try_acquire()) {
    if (progress_lock_.await_engine()) continue;
    if (!progress_lock_.call()) continue;
    transport_.ring(transport_.rank());
    return false;
  }
  return true;
}

void ProgressEngine::attend(Next next) {
  threads_.enter();
  while (!try_acquire()) {
    if (!progress_lock_.call()) continue;
    transport_.ring(transport_.rank());  // The driving thread may be asleep.
    return;
  }
  const ProgressLockHolder lock_holder(*this, next);
  // Often one poll does all work; a second poll without progress shows that.
  moved_ = engines_.poll() && (next == Next::kDrive || engines_.poll());
  has_polled_ = next == Next::kDrive;
}

void ProgressEngine::give_up(const Error& error) {
  aborted_waiters_.release(error);
  if (!progress_lock_.give_up()) call_engine_thread(kDriveNow);  // The stuck thread has just left.
}

bool ProgressEngine::go_on(Deadline& deadline) {
  // Right after `attend` nothing is due, and a poll takes time on a shared core.
  const bool is_due = !std::exchange(has_polled_, false) || engines_.has_submissions();
  moved_ = is_due && engines_.poll();
  if (moved_) {
    spinner_.renew();
  } else if (!spinner_.pass(policy_.spin, policy_.keep_core)) {
    const TimePoint now = std::chrono::steady_clock::now();
    if (now >= deadline.get()) return false;
    const Duration limit = sleep_limit(engines_);
    bool has_slept = true;
    guard([&] {
      has_slept = transport_.sleep(std::min({limit, kPendingSleep, deadline.get() - now}));
    });
    answer_listener();
    if (has_slept) spinner_.renew();
  }
  return !engines_.ended();
}

void ProgressEngine::release(Next next) noexcept {
  for (;;) {
    const bool idle = engines_.idle();
    const bool is_watched = progress_lock_.is_watched();
    // If only incoming data can advance the work, the engine's thread may keep watching for that
    // data, unless the caller will drive again soon.
    const bool can_watch =
        idle || (next == Next::kUnknown && !moved_ && watch_limit_ <= sleep_limit(engines_));
    ProgressLock::Leave left = ProgressLock::Leave::kCalled;
    if (is_watched && can_watch && !engines_.ended()) {
      if (arm(idle)) {
        left = progress_lock_.leave_watched();
        if (left == ProgressLock::Leave::kLeft) return;
        unarm();
        if (left == ProgressLock::Leave::kNotWatched) continue;
      }
    } else {
      left = progress_lock_.leave();
      if (left == ProgressLock::Leave::kLeft) {
        const bool is_needed = !idle && next == Next::kUnknown;
        if (is_needed || engines_.ended()) {
          call_engine_thread(kDriveNow);
        } else if (is_watched) {
          call_engine_thread(kStandBy);
        }
        return;
      }
    }
    moved_ = engines_.poll();
  }
}

void ProgressEngine::call_engine_thread(Doorbell::News why) { call_.ring(why, call_fd_.get()); }

bool ProgressEngine::arm(bool idle) {
  bool is_armed = false;
  guard([&] { is_armed = idle ? transport_.arm_idle() : transport_.arm(); });
  return is_armed;
}

void ProgressEngine::unarm() {
  guard([&] { transport_.unarm(); });
}

// --- The engine's thread ------------------------------------------------------------------------

void ProgressEngine::run() noexcept {
  std::uint64_t drives = 0;  // `drives_` when this thread last drove
  while (!engines_.ended()) {
    const bool may_drive = call_.answer() != static_cast<std::uint32_t>(kStandBy);
    if (!may_drive || progress_lock_.end_watch() == ProgressLock::Take::kRefused) {
      call_.sleep(kStandByTime);
      continue;
    }
    guard([&] { transport_.disarm(); });
    answer_listener();
    const std::uint64_t known = std::exchange(drives, drives_.load(std::memory_order_relaxed));
    const bool was_driven = drives != known;
    if (was_driven && engines_.idle()) {
      if (progress_lock_.leave() == ProgressLock::Leave::kLeft) {
        // No thread drives now; a user's thread may drive again soon.
        call_.sleep(kStandByTime);
        continue;
      }
    }
    if (drive_for_all() == Rest::kStandBy) call_.sleep(kStandByTime);
  }
}

ProgressEngine::Rest ProgressEngine::drive_for_all() {
  spinner_.renew();
  for (;;) {
    do {
      moved_ = engines_.poll();
      if (moved_) spinner_.renew();
    } while (!progress_lock_.is_wanted() && !engines_.ended() &&
             (moved_ || spinner_.pass(policy_.background_spin, policy_.keep_core)));
    if (progress_lock_.is_wanted() || engines_.ended()) {
      if (progress_lock_.leave() == ProgressLock::Leave::kLeft) return Rest::kStandBy;
      continue;
    }
    const Duration limit = sleep_limit(engines_);
    watch_limit_ = limit;
    if (!arm(engines_.idle())) continue;
    if (progress_lock_.leave_to_watch() == ProgressLock::Leave::kLeft) {
      watch(limit);
      return Rest::kWatched;
    }
    unarm();
  }
}

void ProgressEngine::watch(Duration limit) {
  if (call_.park(Doorbell::Rest::kParked)) {
    const timespec time{.tv_sec = limit.count() / 1'000'000'000,
                        .tv_nsec = limit.count() % 1'000'000'000};
    // An epoll descriptor would cost more: the kernel would notify it of every message, whether or
    // not a thread watches, and the sender would pay for that.
    ::ppoll(watched_.data(), watched_.size(), limit == kNoLimit ? nullptr : &time, nullptr);
  }
  call_.unpark();
  drain_event(call_fd_.get());
}

EngineThread::EngineThread(ProgressEngine& progress_engine)
    : thread_([&progress_engine] { progress_engine.run(); }) {
  ::pthread_setname_np(thread_.native_handle(), "kolo-engine");
}

EngineThread::~EngineThread() { thread_.join(); }

}  // namespace kolo
