#include "comm/device/freeing_thread.h"

#include <deque>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "comm/base/log.h"
#include "comm/base/mutex.h"

namespace kolo {

struct FreeingThread::Queue {
  Mutex mutex;
  ConditionVariable emptied;
  std::deque<std::function<void()>> waiting KOLO_GUARDED_BY(mutex);
  bool has_thread KOLO_GUARDED_BY(mutex) = false;

  bool wait_until_over(MutexLock& lock) KOLO_REQUIRES(mutex) {
    return emptied.wait_for(lock, kLongestWait,
                            [this]() KOLO_REQUIRES(mutex) { return !has_thread; });
  }

  /// Takes the next call. If there is none, the thread ends.
  std::optional<std::function<void()>> next() {
    const MutexLock lock(mutex);
    if (waiting.empty()) {
      has_thread = false;
      emptied.notify_all();
      return std::nullopt;
    }
    auto free = std::make_optional(std::move(waiting.front()));
    waiting.pop_front();
    return free;
  }
};

FreeingThread::FreeingThread() : queue_(std::make_shared<Queue>()) {}

FreeingThread::~FreeingThread() {
  MutexLock lock(queue_->mutex);
  if (!queue_->wait_until_over(lock)) {
    log::warn("memory of a device could not be freed, because the device works on; it is left");
  }
}

bool FreeingThread::finish() {
  MutexLock lock(queue_->mutex);
  return queue_->has_thread && queue_->wait_until_over(lock);
}

void FreeingThread::run(std::function<void()> free) noexcept {
  const MutexLock lock(queue_->mutex);
  try {
    queue_->waiting.push_back(std::move(free));
    if (queue_->has_thread) return;
    std::thread([queue = queue_] {
      while (const auto next = queue->next()) (*next)();
    }).detach();
    queue_->has_thread = true;
  } catch (const std::exception& error) {
    log::error(std::string("memory of a device is freed later: ") + error.what());
  }
}

}  // namespace kolo
