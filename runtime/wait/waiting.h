#pragma once

#include <atomic>

#include "comm/base/clock.h"
#include "comm/base/mutex.h"
#include "runtime/wait/bystanders.h"
#include "runtime/wait/deadline.h"
#include "runtime/wait/driver.h"

namespace kolo {

/// Counts the caller's thread among those that wait, while it lives.
class Waiting {
 public:
  explicit Waiting(std::atomic<int>& waiters) : waiters_(waiters) { ++waiters_; }
  ~Waiting() { --waiters_; }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  std::atomic<int>& waiters_;
};

/// Waits until `settled()`: by driving the engine if there is a driver and no other thread drives
/// it, or else until the thread that drives notifies `changed`. Returns false if `deadline` comes
/// first; throws if the thread that drives is given up.
///
/// Before: `settled` may be called without the mutex, and changes under it.
template <typename Settled>
bool wait_until(Deadline deadline, Driver* driver, const Settled& settled, Mutex& mutex,
                ConditionVariable& changed) {
  if (driver != nullptr) driver->drive(settled, deadline);
  if (settled()) return true;
  Bystanders* const bystanders = driver != nullptr ? &driver->bystanders() : nullptr;
  const Bystanders::Place place(bystanders, mutex, changed);
  const auto is_over = [&] { return settled() || place.is_released(); };
  {
    MutexLock lock(mutex);
    if (deadline.get() == TimePoint::max()) {
      changed.wait(lock, is_over);
    } else {
      changed.wait_until(lock, deadline.get(), is_over);
    }
  }
  if (settled()) return true;
  if (bystanders != nullptr) bystanders->throw_if_released();
  return false;
}

}  // namespace kolo
