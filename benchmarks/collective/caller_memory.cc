#include "benchmarks/collective/caller_memory.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "benchmarks/common/host_memory.h"
#include "comm/base/check.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo::bench {
namespace {

class HostPlace final : public Place {
 public:
  using Allocate = std::function<std::shared_ptr<void>(std::size_t bytes)>;
  explicit HostPlace(Allocate allocate) : allocate_(std::move(allocate)) {}

  std::shared_ptr<void> allocate(std::size_t bytes) override { return allocate_(bytes); }
  void put(void* to, const void* elements, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, elements, bytes);
  }
  void get(void* elements, const void* from, std::size_t bytes) override {
    put(elements, from, bytes);
  }
  /// Uses the library's copy kernel.
  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) convert(DType::kUInt8, to, DType::kUInt8, from, bytes, 1.0);
  }

 private:
  Allocate allocate_;
};

class DevicePlace final : public Place {
 public:
  explicit DevicePlace(Device& device)
      : device_(device), stream_(device.make_stream()), copied_(device.make_event()) {}

  std::shared_ptr<void> allocate(std::size_t bytes) override {
    auto memory = std::make_shared<DeviceMemory>(device_.allocate(bytes, MemoryKind::kDevice));
    return {memory, memory->data()};
  }
  void put(void* to, const void* elements, std::size_t bytes) override {
    if (bytes == 0) return;
    stage(bytes);
    std::memcpy(staging_.data(), elements, bytes);
    enqueue(to, MemoryKind::kDevice, staging_.data(), MemoryKind::kPinned, bytes);
    finish();
  }
  void get(void* elements, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    stage(bytes);
    enqueue(staging_.data(), MemoryKind::kPinned, from, MemoryKind::kDevice, bytes);
    finish();
    std::memcpy(elements, staging_.data(), bytes);
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) enqueue(to, MemoryKind::kDevice, from, MemoryKind::kDevice, bytes);
  }
  std::optional<NativeStream> stream() const override { return NativeStream{stream_->native()}; }

 private:
  void stage(std::size_t bytes) {
    if (bytes > staging_.bytes()) staging_ = device_.allocate(bytes, MemoryKind::kPinned);
  }
  void enqueue(void* to, MemoryKind to_kind, const void* from, MemoryKind from_kind,
               std::size_t bytes) {
    stream_->copy({to, bytes, DType::kUInt8, to_kind},
                  {const_cast<void*>(from), bytes, DType::kUInt8, from_kind});
  }
  void finish() {
    stream_->record(*copied_);
    while (!copied_->done()) std::this_thread::yield();
  }

  Device& device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> copied_;
  DeviceMemory staging_;
};

}  // namespace

std::shared_ptr<Place> host_place() {
  return std::make_shared<HostPlace>([](std::size_t bytes) -> std::shared_ptr<void> {
    auto memory = std::make_shared<HostMemory>(bytes);
    return {memory, memory->data()};
  });
}

std::shared_ptr<Place> arena_place(Runtime& runtime) {
  return std::make_shared<HostPlace>([&](std::size_t bytes) { return runtime.allocate(bytes); });
}

std::shared_ptr<Place> device_place(Device& device) {
  return std::make_shared<DevicePlace>(device);
}

std::shared_ptr<Place> place_of(Runtime& runtime, Home home) {
  if (memory_kind(home) == MemoryKind::kHost) {
    return in_arena(home) ? arena_place(runtime) : host_place();
  }
  ensure(runtime.device() != nullptr, "a case in device memory without a device");
  return device_place(*runtime.device());
}

CallerMemory::CallerMemory(const CollectiveCase& what, const CaseCounts& counts,
                           std::shared_ptr<Place> place, std::size_t least_bytes)
    : place_(std::move(place)),
      in_place_(what.in_place),
      contributed_(counts.contributed * size_of(what.dtype)),
      received_(counts.received * size_of(what.dtype)),
      contributed_at_(in_place_ ? counts.contributed_at * size_of(what.dtype) : 0),
      received_at_(in_place_ ? counts.received_at * size_of(what.dtype) : 0) {
  const std::size_t bytes =
      in_place_ ? std::max(contributed_at_ + contributed_, received_at_ + received_) : received_;
  const auto at_least_one = [](std::size_t size) { return std::max<std::size_t>(size, 1); };
  if (bytes > 0 || what.count() == 0) {
    result_ = place_->allocate(at_least_one(std::max(bytes, least_bytes)));
  }
  contribution_ = in_place_ ? result_ : place_->allocate(at_least_one(contributed_));
}

void CallerMemory::forget() {
  const std::vector<std::byte> others(received_, std::byte{0xA5});
  place_->put(result(), others.data(), received_);
}

}  // namespace kolo::bench
