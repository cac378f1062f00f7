#include "tests/support/device/host_device.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/base/error.h"
#include "comm/base/mutex.h"
#include "comm/device/kernels/kernels.h"
#include "comm/device/kernels/top_k.h"
#include "comm/kernels/reduce_kernels.h"
#include "tests/support/device/host_stream.h"

namespace kolo {
namespace {

constexpr std::align_val_t kAlignment{256};

}  // namespace

HostDeviceMemory::~HostDeviceMemory() {
  for (void* data : in_use_) ::operator delete(data, kAlignment);
}

void* HostDeviceMemory::allocate(std::size_t bytes) {
  void* const data = ::operator new(std::max<std::size_t>(bytes, 1), kAlignment);
  std::memset(data, std::to_integer<int>(kPoison), bytes);
  const MutexLock lock(mutex_);
  in_use_.insert(data);
  return data;
}

void HostDeviceMemory::free(void* data, std::size_t bytes) {
  std::memset(data, std::to_integer<int>(kPoison), bytes);
  {
    const MutexLock lock(mutex_);
    in_use_.erase(data);
  }
  ::operator delete(data, kAlignment);
}

std::size_t HostDeviceMemory::in_use() {
  const MutexLock lock(mutex_);
  return in_use_.size();
}

void HostKernels::copy_batched(Stream& stream, const BatchedCopy& copy) {
  as_host(stream).enqueue([copy] {
    copy_batched_on_host(copy);
    return true;
  });
}

void HostKernels::reduce(Stream& stream, DType dtype, ReduceOp op, void* target,
                         std::span<const void* const> sources, std::size_t count, double scale) {
  check_reduce(sources.size());
  std::array<const void*, kMostReduceSources> kept;
  std::copy(sources.begin(), sources.end(), kept.begin());
  as_host(stream).enqueue([=, source_count = sources.size()] {
    kolo::reduce(dtype, op, target, std::span(kept).first(source_count), count, scale);
    return true;
  });
}

void HostKernels::sum_rows(Stream& stream, const RowGroups& groups, const void* rows,
                           std::size_t width, DType dtype, double scale, void* sums) {
  as_host(stream).enqueue([=] {
    kolo::sum_rows(groups, static_cast<const std::byte*>(rows), width, dtype, scale,
                   static_cast<std::byte*>(sums));
    return true;
  });
}

void HostKernels::spread_rows(Stream& stream, std::span<const std::int64_t> indices,
                              const void* rows, std::size_t row_bytes, void* table,
                              std::size_t height) {
  as_host(stream).enqueue([=] {
    if (height * row_bytes > 0) std::memset(table, 0, height * row_bytes);
    kolo::spread_rows(indices, static_cast<const std::byte*>(rows), row_bytes,
                      static_cast<std::byte*>(table));
    return true;
  });
}

void HostKernels::top_k(Stream& stream, const TopK& task, std::span<std::byte> workspace) {
  check_top_k(task, workspace);
  as_host(stream).enqueue([=] {
    top_k_on_host(task);
    return true;
  });
}

void HostKernels::subtract_pairs(Stream& stream, std::span<const std::int64_t> indices,
                                 const float* values, float* residual, float* velocity) {
  as_host(stream).enqueue([=] {
    subtract_pairs_on_host(indices, values, residual, velocity);
    return true;
  });
}

void HostKernels::quantise(Stream& stream, const Quantisation& task) {
  as_host(stream).enqueue([task] {
    quantise_on_host(task);
    return true;
  });
}

void HostKernels::find_non_finite(Stream& stream, DType dtype, const void* data, std::size_t count,
                                  std::uint32_t* non_finite) {
  as_host(stream).enqueue([=] {
    find_non_finite_on_host(dtype, data, count, non_finite);
    return true;
  });
}

std::unique_ptr<Stream> HostDeviceBase::make_stream() {
  std::unique_ptr<Stream> stream = open_stream();
  ++streams_;
  return stream;
}

std::unique_ptr<Event> HostDeviceBase::make_event() {
  ++events_;
  return std::make_unique<HostEvent>();
}

DeviceMemory HostDeviceBase::allocate(std::size_t bytes, MemoryKind kind) {
  check(kind != MemoryKind::kHost, "a device allocates only device and pinned memory");
  void* data = nullptr;
  try {
    data = memory_->allocate(bytes);
  } catch (const std::bad_alloc&) {
    throw KoloError(
        {.code = ErrorCode::kResources,
         .what = fmt::format("{}: no {} bytes of {} memory", describe(), bytes, to_string(kind))});
  }
  ++allocations_;
  const auto free = [memory = memory_, bytes](void* freed) { memory->free(freed, bytes); };
  return DeviceMemory(data, bytes, kind, free, stuck());
}

void HostDeviceBase::record(NativeStream stream, Event& event) {
  if (stream.handle != nullptr) {
    static_cast<HostStream*>(stream.handle)->record(event);
  } else {
    as_host(event).clear();
  }
}

void HostDeviceBase::wait(NativeStream stream, const Event& event) {
  if (stream.handle == nullptr) return wait_in_thread(event);
  static_cast<HostStream*>(stream.handle)->wait(event);
}

void HostDeviceBase::wait_in_thread(const Event&) {
  throw UsageError("there is no stream that could wait");
}

AllocationCounts HostDeviceBase::allocation_counts() const {
  return {.allocations = allocations_, .streams = streams_, .events = events_};
}

namespace {

using std::chrono::microseconds;

/// An operation that cannot complete is retried: a few times without a pause, then with growing
/// pauses. Streams do not wake each other: a wake-up would order them, and thus hide a missing
/// order from ThreadSanitizer.
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

  /// Waits for the oldest task. Returns an empty optional when the stream is closed.
  std::optional<StreamTask> next() {
    MutexLock lock(mutex_);
    changed_.wait(lock, [this]() KOLO_REQUIRES(mutex_) { return closed_ || !queue_.empty(); });
    if (closed_) return std::nullopt;
    std::optional<StreamTask> task(std::move(queue_.front()));
    queue_.pop();
    return task;
  }

  /// Returns false when the stream is closed.
  bool sleep(microseconds pause) {
    MutexLock lock(mutex_);
    return !changed_.wait_for(lock, pause, [this]() KOLO_REQUIRES(mutex_) { return closed_; });
  }

  Mutex mutex_;
  ConditionVariable changed_;
  TaskQueue queue_ KOLO_GUARDED_BY(mutex_);
  bool closed_ KOLO_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last member, because it uses the others
};

}  // namespace

std::unique_ptr<Stream> HostDevice::open_stream() { return std::make_unique<ThreadStream>(); }

class SeededHostDevice::SeededStream final : public HostStream {
 public:
  explicit SeededStream(SeededHostDevice& device)
      : device_(device),
        streams_(device.streams_),
        queue_of_device_(device.queues_ > 0 ? device.opened_ % device.queues_ : device.opened_) {
    ++device.opened_;
    streams_.push_back(this);
  }
  ~SeededStream() override {
    std::erase(streams_, this);
    drop_unfinished();
  }

  bool idle() const { return queue_.empty(); }
  /// Returns whether an earlier operation of the same queue is not complete.
  bool waits_in_queue() const {
    return std::ranges::any_of(streams_, [this](const SeededStream* other) {
      return other->queue_of_device_ == queue_of_device_ && !other->numbers_.empty() &&
             other->numbers_.front() < numbers_.front();
    });
  }

  /// Returns true if the oldest operation has completed or failed.
  bool step() {
    // The task leaves the queue first, because it may enqueue another operation.
    StreamTask task = std::move(queue_.front());
    if (!failed() && !attempt(task)) {
      queue_.front() = std::move(task);
      return false;
    }
    queue_.pop();
    if (!numbers_.empty()) numbers_.pop_front();
    return true;
  }

 private:
  void push(StreamTask task) override {
    queue_.push(std::move(task));
    if (device_.queues_ > 0) numbers_.push_back(device_.enqueued_++);
  }

  SeededHostDevice& device_;
  std::vector<SeededStream*>& streams_;
  const std::size_t queue_of_device_;
  TaskQueue queue_;
  std::deque<std::uint64_t> numbers_;  // of the tasks, if streams share queues
};

bool SeededHostDevice::step() {
  candidates_ = streams_;
  std::erase_if(candidates_, [this](const SeededStream* stream) {
    return stream->idle() || (queues_ > 0 && stream->waits_in_queue());
  });
  while (!candidates_.empty()) {
    const std::size_t pick = generator_() % candidates_.size();
    if (candidates_[pick]->step()) return true;
    candidates_.erase(candidates_.begin() + static_cast<std::ptrdiff_t>(pick));
  }
  return false;
}

std::unique_ptr<Stream> SeededHostDevice::open_stream() {
  return std::make_unique<SeededStream>(*this);
}

}  // namespace kolo
