#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "comm/device/device.h"
#include "compression/payload.h"

namespace kolo {

/// The stream on which the error feedback of a gradient set works between steps. A device has few
/// hardware queues, so all compressed buckets of a set share it. Threads: one at a time.
struct FeedbackStream {
  /// `its_device` must outlive this object.
  explicit FeedbackStream(Device& its_device)
      : device(its_device), stream(its_device.make_stream()) {}

  Device& device;
  const std::unique_ptr<Stream> stream;
};

/// A flag in device memory, which work of one stream raises and the processor reads.
///
/// Threads: the stream's; any thread may call `is_raised` once the work after `end` is complete.
class DeviceFlag {
 public:
  explicit DeviceFlag(Device& device);

  /// Lowers the flag and returns its address on the device.
  std::uint32_t* begin(Stream& stream);
  /// Copies the flag to the processor, after the work enqueued so far.
  void end(Stream& stream);
  bool is_raised() const { return words()[1] != 0; }

 private:
  std::uint32_t* words() const { return reinterpret_cast<std::uint32_t*>(pinned_.data()); }

  DeviceMemory pinned_;  // zero, and the copy of the flag
  DeviceMemory flag_;
};

/// Pairs on their way from the processor to a device, in lists of one tensor each.
///
/// Threads: one at a time, as the stream's.
class DevicePairs {
 public:
  /// Holds at most `most` pairs.
  DevicePairs(Device& device, std::size_t most);

  struct List {
    std::span<const std::int64_t> indices = {};  ///< In device memory, as `values`.
    const float* values = nullptr;
  };
  /// Drops all lists. Their copies are complete before the next `add`.
  void restart() { used_ = uploaded_ = 0; }
  /// Adds a list and returns its place on the device, for work enqueued after `upload`.
  List add(const PairsView& pairs);
  /// Enqueues the copies of the lists that were added since the last call.
  void upload(Stream& stream);

 private:
  std::size_t values_at(std::size_t pair) const {
    return most_ * sizeof(std::int64_t) + pair * sizeof(float);
  }

  std::size_t most_;
  std::size_t used_ = 0, uploaded_ = 0;
  DeviceMemory pinned_, device_;  // indices, then values
};

/// The part of error feedback in device memory that works between the steps of schedules: it
/// subtracts pairs, and copies numbers from and to the processor.
///
/// Threads: one at a time.
class FeedbackDevice {
 public:
  /// Steps select and subtract at most `most_pairs` pairs; tensors have at most `most_elements`
  /// elements.
  FeedbackDevice(std::shared_ptr<FeedbackStream> on, std::size_t most_pairs,
                 std::size_t most_elements);

  DeviceKernels& kernels() { return device_.kernels(); }
  /// Memory for `DeviceKernels::top_k`, which the steps of one stream use in turn.
  std::span<std::byte> workspace() const { return {workspace_.data(), workspace_.bytes()}; }

  /// Begins a step on `stream`, after the work enqueued by the functions below.
  void begin_step(Stream& stream);
  /// Enqueues zeros.
  void clear(std::span<float> numbers);
  /// Enqueues the subtraction of pairs of a step; see `DeviceKernels::subtract_pairs`.
  void subtract(const PairsView& pairs, float* residual, float* velocity);
  /// Copy numbers between the device and the processor, and wait for the copies.
  void read(std::span<const float> numbers, std::span<float> to);
  void write(std::span<float> numbers, std::span<const float> from);
  /// Waits for the work of all functions above, unless the device is stuck; logs errors.
  void finish() noexcept;

 private:
  const std::shared_ptr<FeedbackStream> on_;
  Device& device_;
  Stream& stream_;
  std::unique_ptr<Event> enqueued_;  // after all work of this object
  DeviceMemory workspace_, staging_;
  DevicePairs sent_;
};

}  // namespace kolo
