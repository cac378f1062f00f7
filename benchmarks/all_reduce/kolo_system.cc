#include "benchmarks/all_reduce/kolo_system.h"

#include <fmt/format.h>

#include <cstring>
#include <thread>

#include "benchmarks/common/host_memory.h"
#include "comm/base/check.h"
#include "comm/device/device.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo::bench {
namespace {

GradientSet register_one(Runtime& runtime, const AllReduceCase& what, void* data) {
  // Sets of several cases exist at the same time.
  const std::string name = fmt::format("all_reduce {} {}", to_string(what.home),
                                       what.in_place ? "in place" : "out of place");
  return runtime.register_gradients(
      name,
      {{.name = fmt::format("{} bytes", what.bytes),
        .shape = {what.count()},
        .dtype = what.dtype,
        .data = data,
        .memory = memory_kind(what.home)}},
      {.op = what.op, .wire_dtype = what.wire, .compression = "none"});
}

/// Out of place in the caller's memory, by the call with a separate input.
class OutOfPlaceRun final : public AllReduceRun {
 public:
  OutOfPlaceRun(Runtime& runtime, const AllReduceCase& what)
      : runtime_(runtime),
        name_(fmt::format("all_reduce out of place {} bytes", what.bytes)),
        op_(what.op),
        contribution_(what.bytes),
        memory_(what.bytes),
        sum_{.data = memory_.data(), .count = what.count(), .dtype = what.dtype} {}

  void write(const void* elements) override {
    std::memcpy(contribution_.data(), elements, sum_.bytes());
  }
  void read(void* elements) override { std::memcpy(elements, sum_.data, sum_.bytes()); }
  void read_contribution(void* elements) override {
    std::memcpy(elements, contribution_.data(), sum_.bytes());
  }
  void run() override { runtime_.all_reduce(name_, contribution_.data(), sum_, op_); }
  std::string algorithm() const override { return runtime_.options().algorithm; }

 private:
  Runtime& runtime_;
  const std::string name_;
  const ReduceOp op_;
  HostMemory contribution_;
  HostMemory memory_;
  BufferView sum_;
};

class HostRun final : public AllReduceRun {
 public:
  HostRun(Runtime& runtime, const AllReduceCase& what)
      : contribution_(what.in_place ? HostMemory() : HostMemory(what.bytes)),
        memory_(in_arena(what.home) ? HostMemory() : HostMemory(what.bytes)),
        gradients_(register_one(runtime, what, memory_.data())) {}

  void write(const void* elements) override {
    const BufferView sum = gradients_.view(0);
    std::memcpy(contribution_ ? contribution_.data() : sum.data, elements, sum.bytes());
  }
  void read(void* elements) override {
    const BufferView sum = gradients_.view(0);
    std::memcpy(elements, sum.data, sum.bytes());
  }
  void read_contribution(void* elements) override {
    const BufferView sum = gradients_.view(0);
    std::memcpy(elements, contribution_ ? contribution_.data() : sum.data, sum.bytes());
  }
  void run() override {
    if (contribution_) {
      const BufferView sum = gradients_.view(0);
      convert(sum.dtype, sum.data, sum.dtype, contribution_.data(), sum.count, 1.0);
    }
    gradients_.ready(0);
    gradients_.wait();
  }
  std::string algorithm() const override { return gradients_.plan().algorithm; }

 private:
  HostMemory contribution_;
  HostMemory memory_;
  GradientSet gradients_;
};

class DeviceRun final : public AllReduceRun {
 public:
  DeviceRun(Runtime& runtime, Device& device, const AllReduceCase& what)
      : stream_(device.make_stream()),
        written_(device.make_event()),
        staging_(device.allocate(what.bytes, MemoryKind::kPinned)),
        contribution_(what.in_place ? DeviceMemory()
                                    : device.allocate(what.bytes, MemoryKind::kDevice)),
        memory_(in_arena(what.home) ? DeviceMemory()
                                    : device.allocate(what.bytes, MemoryKind::kDevice)),
        gradients_(register_one(runtime, what, memory_.data())) {}

  void write(const void* elements) override {
    std::memcpy(staging_.data(), elements, staging_.bytes());
    stream_->copy(contribution(), view_of(staging_));
    finish();
  }
  void read(void* elements) override { fetch(elements, gradients_.view(0)); }
  void read_contribution(void* elements) override { fetch(elements, contribution()); }
  void run() override {
    if (contribution_) stream_->copy(gradients_.view(0), view_of(contribution_));
    gradients_.ready(0, {stream_->native()});
    gradients_.wait();
  }
  std::string algorithm() const override { return gradients_.plan().algorithm; }

 private:
  BufferView view_of(const DeviceMemory& memory) const {
    BufferView view = gradients_.view(0);
    view.data = memory.data();
    view.memory = memory.kind();
    return view;
  }
  BufferView contribution() const {
    return contribution_ ? view_of(contribution_) : gradients_.view(0);
  }
  void fetch(void* elements, const BufferView& source) {
    stream_->copy(view_of(staging_), source);
    finish();
    std::memcpy(elements, staging_.data(), staging_.bytes());
  }
  void finish() {
    stream_->record(*written_);
    while (!written_->done()) std::this_thread::yield();
  }

  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> written_;
  DeviceMemory staging_;
  DeviceMemory contribution_;
  DeviceMemory memory_;
  GradientSet gradients_;
};

class KoloSystem final : public AllReduceSystem {
 public:
  explicit KoloSystem(Runtime& runtime) : runtime_(runtime) {}

  std::string name() const override { return "kolo"; }
  bool has_arena() const override { return true; }
  std::vector<std::unique_ptr<AllReduceRun>> prepare(const AllReduceCase& what) override {
    std::vector<std::unique_ptr<AllReduceRun>> runs;
    if (what.home == Home::kUser && !what.in_place && !what.wire) {
      runs.push_back(std::make_unique<OutOfPlaceRun>(runtime_, what));
    } else if (memory_kind(what.home) == MemoryKind::kHost) {
      runs.push_back(std::make_unique<HostRun>(runtime_, what));
    } else {
      ensure(runtime_.device() != nullptr, "a case in device memory without a device");
      runs.push_back(std::make_unique<DeviceRun>(runtime_, *runtime_.device(), what));
    }
    return runs;
  }
  std::optional<std::uint64_t> wire_bytes() const override { return runtime_.network_bytes_sent(); }

 private:
  Runtime& runtime_;
};

}  // namespace

std::unique_ptr<AllReduceSystem> make_kolo_system(Runtime& runtime) {
  return std::make_unique<KoloSystem>(runtime);
}

}  // namespace kolo::bench
