#include <fmt/format.h>

#include <cstring>
#include <thread>

#include "benchmarks/all_reduce_system.h"
#include "comm/base/aligned_memory.h"
#include "comm/base/check.h"

namespace kolo::bench {
namespace {

/// A gradient set of one gradient: the way that training takes.
GradientSet register_one(Runtime& runtime, const AllReduceCase& what, void* data) {
  return runtime.register_gradients("all_reduce",
                                    {{.name = fmt::format("{} bytes", what.bytes),
                                      .shape = {what.count()},
                                      .dtype = what.dtype,
                                      .data = data,
                                      .memory = what.memory}},
                                    {.op = what.op, .wire_dtype = what.wire});
}

class HostRun final : public AllReduceRun {
 public:
  HostRun(Runtime& runtime, const AllReduceCase& what)
      : memory_(what.in_arena ? nullptr : allocate_aligned(what.bytes)),
        gradients_(register_one(runtime, what, memory_.get())) {}

  void write(const void* elements) override {
    const BufferView view = gradients_.view(0);
    std::memcpy(view.data, elements, view.bytes());
  }
  void read(void* elements) override {
    const BufferView view = gradients_.view(0);
    std::memcpy(elements, view.data, view.bytes());
  }
  void run() override {
    gradients_.ready(0);
    gradients_.wait();
  }
  std::string algorithm() const override { return gradients_.plan().algorithm; }

 private:
  AlignedMemory memory_;
  GradientSet gradients_;
};

class DeviceRun final : public AllReduceRun {
 public:
  DeviceRun(Runtime& runtime, Device& device, const AllReduceCase& what)
      : stream_(device.make_stream()),
        written_(device.make_event()),
        staging_(device.allocate(what.bytes, MemoryKind::kPinned)),
        memory_(what.in_arena ? DeviceMemory() : device.allocate(what.bytes, MemoryKind::kDevice)),
        gradients_(register_one(runtime, what, memory_.data())) {}

  void write(const void* elements) override {
    std::memcpy(staging_.data(), elements, staging_.bytes());
    stream_->copy(gradients_.view(0), staging());
    finish();
  }
  void read(void* elements) override {
    stream_->copy(staging(), gradients_.view(0));
    finish();
    std::memcpy(elements, staging_.data(), staging_.bytes());
  }
  void run() override {
    gradients_.ready(0, {stream_->native()});
    gradients_.wait();
  }
  std::string algorithm() const override { return gradients_.plan().algorithm; }

 private:
  BufferView staging() const {
    BufferView view = gradients_.view(0);
    view.data = staging_.data();
    view.memory = MemoryKind::kPinned;
    return view;
  }
  void finish() {
    stream_->record(*written_);
    while (!written_->done()) std::this_thread::yield();
  }

  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> written_;
  DeviceMemory staging_;
  DeviceMemory memory_;
  GradientSet gradients_;
};

class KoloSystem final : public AllReduceSystem {
 public:
  KoloSystem(Runtime& runtime, Device* device) : runtime_(runtime), device_(device) {}

  std::string name() const override { return "kolo"; }
  std::unique_ptr<AllReduceRun> prepare(const AllReduceCase& what) override {
    if (what.memory == MemoryKind::kHost) return std::make_unique<HostRun>(runtime_, what);
    ensure(device_ != nullptr, "a case in device memory without a device");
    return std::make_unique<DeviceRun>(runtime_, *device_, what);
  }
  std::optional<std::uint64_t> wire_bytes() const override { return runtime_.network_bytes_sent(); }

 private:
  Runtime& runtime_;
  Device* device_;
};

}  // namespace

std::unique_ptr<AllReduceSystem> make_kolo_system(Runtime& runtime, Device* device) {
  return std::make_unique<KoloSystem>(runtime, device);
}

}  // namespace kolo::bench
