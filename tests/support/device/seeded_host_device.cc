#include "tests/support/device/seeded_host_device.h"

#include <algorithm>
#include <utility>

#include "tests/support/device/host_stream.h"
#include "tests/support/device/task_queue.h"

namespace kolo {

class SeededHostDevice::SeededStream final : public HostStream {
 public:
  explicit SeededStream(std::vector<SeededStream*>& streams) : streams_(streams) {
    streams_.push_back(this);
  }
  ~SeededStream() override {
    std::erase(streams_, this);
    drop_unfinished();
  }

  bool idle() const { return queue_.empty(); }

  /// Returns true if the oldest operation has completed or failed.
  bool step() {
    // Called outside the queue, because it may enqueue.
    StreamTask task = std::move(queue_.front());
    if (!failed() && !attempt(task)) {
      queue_.front() = std::move(task);
      return false;
    }
    queue_.pop();
    return true;
  }

 private:
  void push(StreamTask task) override { queue_.push(std::move(task)); }

  std::vector<SeededStream*>& streams_;
  TaskQueue queue_;
};

bool SeededHostDevice::step() {
  candidates_ = streams_;
  std::erase_if(candidates_, [](const SeededStream* stream) { return stream->idle(); });
  while (!candidates_.empty()) {
    const std::size_t pick = generator_() % candidates_.size();
    if (candidates_[pick]->step()) return true;
    candidates_.erase(candidates_.begin() + static_cast<std::ptrdiff_t>(pick));
  }
  return false;
}

std::unique_ptr<Stream> SeededHostDevice::open_stream() {
  return std::make_unique<SeededStream>(streams_);
}

}  // namespace kolo
