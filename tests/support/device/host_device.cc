#include "tests/support/device/host_device.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "comm/base/mutex.h"
#include "tests/support/device/host_stream.h"
#include "tests/support/device/task_queue.h"

namespace kolo {
namespace {

using std::chrono::microseconds;

/// Retries an operation that cannot complete yet: a few times at once, then with growing pauses.
/// Streams do not wake each other: waking would order them, and hide from ThreadSanitizer that an
/// order is missing.
constexpr int kRetriesAtOnce = 16;
constexpr microseconds kShortestPause{10};
constexpr microseconds kLongestPause{500};

class ThreadStream final : public HostStream {
 public:
  ThreadStream() : thread_([this] { run(); }) {}

  ~ThreadStream() override {
    {
      const MutexLock lock(mutex_);
      closed_ = true;
    }
    changed_.notify_one();
    thread_.join();
    drop_unfinished();
  }

 private:
  void push(StreamTask task) override {
    {
      const MutexLock lock(mutex_);
      queue_.push(std::move(task));
    }
    changed_.notify_one();
  }

  void run() {
    while (std::optional<StreamTask> task = next()) {
      int retries = 0;
      for (microseconds pause = kShortestPause; !failed() && !attempt(*task);) {
        if (++retries <= kRetriesAtOnce) {
          std::this_thread::yield();
          continue;
        }
        if (!sleep(pause)) return;
        pause = std::min(2 * pause, kLongestPause);
      }
    }
  }

  /// Waits for the oldest task; returns nothing once the stream is closed.
  std::optional<StreamTask> next() {
    MutexLock lock(mutex_);
    changed_.wait(lock, [this]() KOLO_REQUIRES(mutex_) { return closed_ || !queue_.empty(); });
    if (closed_) return std::nullopt;
    std::optional<StreamTask> task(std::move(queue_.front()));
    queue_.pop();
    return task;
  }

  /// Returns false once the stream is closed.
  bool sleep(microseconds pause) {
    MutexLock lock(mutex_);
    return !changed_.wait_for(lock, pause, [this]() KOLO_REQUIRES(mutex_) { return closed_; });
  }

  Mutex mutex_;
  ConditionVariable changed_;
  TaskQueue queue_ KOLO_GUARDED_BY(mutex_);
  bool closed_ KOLO_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace

std::unique_ptr<Stream> HostDevice::open_stream() { return std::make_unique<ThreadStream>(); }

}  // namespace kolo
