#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/base/check.h"
#include "comm/base/mutex.h"
#include "comm/device/device.h"
#include "comm/device/device_kernels.h"

namespace kolo {

/// Fills emulated device or pinned memory after allocation and before it is freed. It is NaN in
/// every float dtype and -1 in the signed integers, so that unwritten values show.
inline constexpr std::byte kPoison{0xff};

/// The memory of a device in host memory. Memory that a stuck device leaks is freed with the
/// device. Threads: any.
class HostDeviceMemory {
 public:
  HostDeviceMemory() = default;
  ~HostDeviceMemory();
  HostDeviceMemory(const HostDeviceMemory&) = delete;
  HostDeviceMemory& operator=(const HostDeviceMemory&) = delete;

  void* allocate(std::size_t bytes);
  void free(void* data, std::size_t bytes);
  /// Returns the number of allocations that were not freed.
  std::size_t in_use();

 private:
  Mutex mutex_;
  std::set<void*> in_use_ KOLO_GUARDED_BY(mutex_);
};

/// The kernels of host streams. Each call enqueues the CPU reference as one operation. Stateless.
/// Threads: any.
class HostKernels final : public DeviceKernels {
 public:
  void copy_batched(Stream& stream, const BatchedCopy& copy) override;
  void reduce(Stream& stream, DType dtype, ReduceOp op, void* target,
              std::span<const void* const> sources, std::size_t count, double scale) override;
  void sum_rows(Stream& stream, const RowGroups& groups, const void* rows, std::size_t width,
                DType dtype, double scale, void* sums) override;
  void spread_rows(Stream& stream, std::span<const std::int64_t> indices, const void* rows,
                   std::size_t row_bytes, void* table, std::size_t height) override;
  void top_k(Stream& stream, const TopK& task, std::span<std::byte> workspace) override;
  void subtract_pairs(Stream& stream, std::span<const std::int64_t> indices, const float* values,
                      float* residual, float* velocity) override;
  void quantise(Stream& stream, const Quantisation& task) override;
  void find_non_finite(Stream& stream, DType dtype, const void* data, std::size_t count,
                       std::uint32_t* non_finite) override;
};

/// The common base of the devices in host memory. They differ in how their streams run.
///
/// A NativeStream is a HostStream* of the same device. A null handle means that the caller has no
/// stream and that its work is already done: `record` then returns a completed event, and `wait`
/// calls `wait_in_thread`.
class HostDeviceBase : public Device {
 public:
  std::unique_ptr<Stream> make_stream() final;
  std::unique_ptr<Event> make_event() final;
  DeviceMemory allocate(std::size_t bytes, MemoryKind kind) final;
  DeviceMemory allocate_on(Stream&, std::size_t bytes) final {
    return allocate(bytes, MemoryKind::kDevice);
  }
  void record(NativeStream stream, Event& event) final;
  void wait(NativeStream stream, const Event& event) final;
  std::string foreign_memory(const void* data) final {
    const auto found = foreign_.find(data);
    return found == foreign_.end() ? std::string() : found->second;
  }
  DeviceKernels& kernels() final { return kernels_; }
  AllocationCounts allocation_counts() const final;

  /// Makes `data` the address of memory of another device, which `text` describes. Call it before
  /// the device is used.
  void mark_foreign(const void* data, std::string text) { foreign_[data] = std::move(text); }
  /// Returns the number of allocations that were not freed.
  std::size_t in_use() { return memory_->in_use(); }

 private:
  virtual std::unique_ptr<Stream> open_stream() = 0;
  /// Makes a caller without a stream wait. By default throws UsageError, because such a caller must
  /// poll the event.
  virtual void wait_in_thread(const Event& event);

  HostKernels kernels_;
  const std::shared_ptr<HostDeviceMemory> memory_ = std::make_shared<HostDeviceMemory>();
  std::map<const void*, std::string> foreign_;
  std::atomic<std::size_t> allocations_{0}, streams_{0}, events_{0};
};

/// Host memory that behaves like an accelerator. Every stream has a thread that runs concurrently
/// with the caller, so a missing wait gives a wrong result or a report of ThreadSanitizer. Memory
/// is poisoned.
class HostDevice : public HostDeviceBase {
 public:
  std::string describe() const override { return "host threads"; }

 private:
  std::unique_ptr<Stream> open_stream() override;
};

/// Host memory that behaves like an accelerator whose streams advance only in `step`, one operation
/// at a time. The seed determines the order. Any interleaving that the waits allow is possible; the
/// same seed and calls give the same interleaving. Memory is poisoned.
///
/// With `queues`, streams share that many hardware queues, as on a GPU: the operations of a queue
/// run in the order in which they were enqueued, although they are of different streams.
///
/// Threads: one thread uses the device and everything that it made.
class SeededHostDevice final : public HostDeviceBase {
 public:
  explicit SeededHostDevice(std::uint64_t seed, std::size_t queues = 0)
      : seed_(seed), queues_(queues), generator_(seed) {}

  std::string describe() const override { return "host, seed " + std::to_string(seed_); }

  /// Completes one operation: the oldest of a stream, drawn at random among the streams whose
  /// oldest operation can complete. Returns false if there is no such stream.
  bool step();

  void finish(const Event& event) override {
    if (!event.done()) ++waits_;
    while (!event.done()) ensure(step(), "an event is never reached");
  }
  /// Returns how often `finish` had to wait.
  std::size_t waits() const { return waits_; }

  /// Calls `step` until no operation can complete.
  void settle() {
    while (step()) {
    }
  }

 private:
  class SeededStream;

  std::unique_ptr<Stream> open_stream() override;

  const std::uint64_t seed_;
  const std::size_t queues_;  // 0: one per stream
  std::mt19937_64 generator_;
  std::vector<SeededStream*> streams_;     // in order of creation
  std::vector<SeededStream*> candidates_;  // used in `step`; reuses its memory
  std::size_t opened_ = 0;                 // number of streams so far
  std::uint64_t enqueued_ = 0;             // operations so far, if streams share queues
  std::size_t waits_ = 0;
};

}  // namespace kolo
