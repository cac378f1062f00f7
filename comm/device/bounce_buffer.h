#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "comm/device/device.h"

namespace kolo {

/// The streams on which one engine copies between device memory and pinned memory: one per
/// direction, so that both directions of the bus are used. Copies in one direction follow each
/// other, so a copy that waits for its caller's stream delays the copies behind it.
///
/// Threads: the engine's.
class CopyStreams {
 public:
  /// `device` outlives it.
  explicit CopyStreams(Device& device) : device_(device) {}

  Device& device() { return device_; }

  /// Copies from the device. Made on first use, at plan time. Errors: as `Device::make_stream`.
  Stream& down() { return made(down_); }
  /// Copies to the device; likewise.
  Stream& up() { return made(up_); }

  /// Keeps memory whose owner is gone until the event `copied` is done.
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

/// Pinned host memory that stands in for buffers in device memory, so that host code can work on
/// them: the contents are copied from the device before each use, and results are copied back after
/// it.
///
///   idle --begin--> filling --copied down--> full --drain--> draining --copied up--> idle
///
/// Threads: the engine's. Never blocks; allocates nothing after the first use.
/// Errors:  KoloError(kInternal) with the device's text if the device has failed.
class BounceBuffer {
 public:
  /// A range of bytes of the bounce buffer, and the device memory that it bounce buffers.
  struct Copy {
    std::size_t offset = 0;
    std::byte* device = nullptr;
    std::size_t bytes = 0;
  };

  /// At plan time. `streams` outlives it. Errors: KoloError(kResources).
  BounceBuffer(CopyStreams& streams, std::size_t bytes);
  /// Copies in progress keep the memory alive.
  ~BounceBuffer();
  BounceBuffer(const BounceBuffer&) = delete;
  BounceBuffer& operator=(const BounceBuffer&) = delete;

  std::byte* data() const { return memory_.data(); }
  std::size_t bytes() const { return memory_.bytes(); }

  /// Begins a use: copies `down` after `ready`, the event after the caller's work on these buffers;
  /// null if that work is done. `up` lists the copies to make at the end. Before: idle.
  void begin(std::span<const Copy> down, std::span<const Copy> up, const Event* ready);
  /// Whether all copies from the device are complete.
  bool is_full();
  /// Copies the results to the device, once the bounce buffer is full. Returns whether all of them
  /// have arrived, which ends the use.
  bool drain();
  /// As `drain`, limited to the first `bytes` of the bounce buffer.
  bool drain_first(std::size_t bytes);

  /// Whether copies are in progress, which must be polled.
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
