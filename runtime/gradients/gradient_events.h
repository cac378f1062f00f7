#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "comm/base/check.h"
#include "comm/device/device.h"
#include "fusion/bucket_planner.h"
#include "fusion/device_packer.h"
#include "fusion/gradient.h"

namespace kolo {

/// Events that order user and runtime streams: one per gradient in device memory, and one per
/// bucket. Without a device there are none.
///
/// Threads: `attach` and `plan` are the engine's, between iterations; any thread may call the rest.
class GradientEvents {
 public:
  /// Creates an event for every gradient in device memory. `device` must outlive this object.
  void attach(Device& device, std::span<const GradientSpec> gradients) {
    device_ = &device;
    clear_ = std::make_unique<DeviceClear>(device);
    for (const GradientSpec& gradient : gradients) {
      const bool is_on_device = gradient.memory == MemoryKind::kDevice;
      ready_.push_back(is_on_device ? device.make_event() : nullptr);
    }
  }
  /// Sets the event after the results of each bucket of `dense`; null for a bucket in host memory.
  void plan(const Plan& dense, std::vector<const Event*> finished) {
    finished_ = std::move(finished);
    combined_.assign(ready_.size(), nullptr);
    for (std::size_t i = 0; has_device() && i < dense.buckets.size(); ++i) {
      for (const PlannedSegment& each : dense.buckets[i].segments) {
        combined_[each.gradient] = finished_[i];
      }
    }
  }

  bool has_device() const { return device_ != nullptr; }
  bool is_on_device(std::size_t bucket) const { return finished_[bucket] != nullptr; }
  const Event& ready(std::size_t gradient) const { return *ready_[gradient]; }

  /// Records that the gradient is ready after the work enqueued on `stream` so far.
  void record(std::size_t gradient, NativeStream stream) {
    device_->record(stream, *ready_[gradient]);
  }
  /// Enqueues setting the gradient to zero, after the former iteration, whose `wait` on a stream
  /// may have returned before its end, and after the work enqueued on `stream` if that is given.
  /// The gradient is ready afterwards.
  void clear(std::size_t gradient, const BufferView& view, std::optional<NativeStream> stream) {
    if (stream) record(gradient, *stream);
    clear_->clear(gradient, view, *ready_[gradient], combined_[gradient]);
  }
  /// Makes `stream` wait for the results of all buckets.
  void await_all(NativeStream stream) {
    for (const Event* event : finished_) {
      if (event != nullptr) device_->wait(stream, *event);
    }
  }

 private:
  Device* device_ = nullptr;
  std::unique_ptr<DeviceClear> clear_;
  std::vector<std::unique_ptr<Event>> ready_;  // by gradient; null in host memory
  std::vector<const Event*> finished_;         // by bucket; null in host memory
  std::vector<const Event*> combined_;         // by gradient: that of its bucket; null without one
};

}  // namespace kolo
