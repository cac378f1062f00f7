#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "comm/device/device.h"

namespace kolo {

/// The two streams on which an engine copies between device memory and pinned memory, one per
/// direction of the bus. Copies in one direction run in order, so a copy that waits for its
/// caller's event delays all later copies.
///
/// Threads: the engine's only.
class CopyStreams {
 public:
  /// `device` must outlive this object.
  explicit CopyStreams(Device& device) : device_(device) {}

  Device& device() { return device_; }

  /// The stream for copies from the device. The first call creates it, at plan time. Errors: those
  /// of `Device::make_stream`.
  Stream& down() { return made(down_); }
  /// The stream for copies to the device, created in the same manner.
  Stream& up() { return made(up_); }

  /// Frees `memory` only after the event `copied` is done.
  void keep(DeviceMemory memory, std::unique_ptr<Event> copied);

 private:
  struct Kept {
    DeviceMemory memory;
    std::unique_ptr<Event> copied;
  };

  Stream& made(std::unique_ptr<Stream>& stream) {
    if (!stream) stream = device_.make_stream();
    return *stream;
  }

  Device& device_;
  std::vector<Kept> kept_;  // declared before the streams, which are destroyed first
  std::unique_ptr<Stream> down_, up_;
};

/// Pinned host memory in which host code works on copies of device buffers. The contents are copied
/// from the device before each use, and results are copied back after it.
///
///   idle --begin--> filling --copied down--> full --drain--> draining --copied up--> idle
///
/// Threads: the engine's only. Never blocks; allocates nothing after the first use.
/// Errors:  KoloError(kInternal) with the device's text if the device has failed.
class BounceBuffer {
 public:
  /// A copy between a range of bytes of the bounce buffer and device memory.
  struct Copy {
    std::size_t offset = 0;
    std::byte* device = nullptr;
    std::size_t bytes = 0;
  };

  /// Allocates `bytes` bytes; call it at plan time. `streams` must outlive this object. Errors:
  /// KoloError(kResources).
  BounceBuffer(CopyStreams& streams, std::size_t bytes);
  /// Does not block: the memory is freed when copies in progress are done.
  ~BounceBuffer();
  BounceBuffer(const BounceBuffer&) = delete;
  BounceBuffer& operator=(const BounceBuffer&) = delete;

  std::byte* data() const { return memory_.data(); }
  std::size_t bytes() const { return memory_.bytes(); }

  /// Begins a use: enqueues the copies `down` from the device. They wait for the event `ready`,
  /// which follows the caller's work on the device buffers; null means that this work is done. `up`
  /// lists the copies to the device that `drain` makes. Before: `is_idle()`.
  void begin(std::span<const Copy> down, std::span<const Copy> up, const Event* ready);
  /// Whether all copies from the device are complete, so that host code may use the contents.
  bool is_full();
  /// Copies the results to the device once `is_full()`. Call it repeatedly. Returns whether the
  /// copies are complete, which ends the use.
  bool drain();
  /// Does the same as `drain`, but copies only the first `bytes` bytes of the bounce buffer.
  bool drain_first(std::size_t bytes);

  /// Whether copies are in progress, so that `is_full` or `drain` must be polled.
  bool is_copying() const { return state_ == State::kFilling || state_ == State::kDraining; }
  /// Whether the next use may begin.
  bool is_idle() const { return state_ == State::kIdle; }

 private:
  enum class State : std::uint8_t { kIdle, kFilling, kFull, kDraining };

  BufferView here(const Copy& copy) const;
  bool is_copied() const { return copied_->done(); }

  CopyStreams& streams_;
  DeviceMemory memory_;
  std::unique_ptr<Event> copied_;
  std::vector<Copy> up_;
  State state_ = State::kIdle;
};

}  // namespace kolo
