#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "comm/device/device.h"

namespace kolo {

/// The streams by which one engine copies between device memory and pinned memory: one in each
/// direction, so that both directions of the bus are in use. Copies of one direction follow each
/// other, so one that waits for its caller's stream holds up those behind it.
///
/// Threads: the engine's.
class CopyLane {
 public:
  /// `device` outlives it.
  explicit CopyLane(Device& device) : device_(device) {}

  Device& device() { return device_; }

  /// From the device. Made at the first use, at plan time. Errors: as `Device::make_stream`.
  Stream& down() { return made(down_); }
  /// To the device; likewise.
  Stream& up() { return made(up_); }

  /// Keeps memory whose owner is gone until the copies before `copied` have left it.
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
  std::vector<Kept> kept_;  // before the streams, which end first
  std::unique_ptr<Stream> down_, up_;
};

/// Pinned host memory in the place of buffers in device memory, so that whatever works on host
/// memory serves them: the contents come down from the device before each use, and results go up
/// after it.
///
///   idle --begin--> filling --copied down--> full --drain--> draining --copied up--> idle
///
/// Threads: the engine's. Nothing blocks; after the first use nothing allocates.
/// Errors:  KoloError(kInternal) with the device's text if the device has failed.
class PinnedMirror {
 public:
  /// A run of bytes of the mirror, and the device memory that it stands for.
  struct Copy {
    std::size_t offset = 0;
    std::byte* device = nullptr;
    std::size_t bytes = 0;
  };

  /// At plan time. `lane` outlives it. Errors: KoloError(kResources).
  PinnedMirror(CopyLane& lane, std::size_t bytes);
  /// Copies that go on keep the memory.
  ~PinnedMirror();
  PinnedMirror(const PinnedMirror&) = delete;
  PinnedMirror& operator=(const PinnedMirror&) = delete;

  std::byte* data() const { return memory_.data(); }
  std::size_t bytes() const { return memory_.bytes(); }

  /// Begins a use: copies `down` behind `ready`, the caller's work on all these buffers; null if
  /// that is done. `up` is for its end. Before: idle.
  void begin(std::span<const Copy> down, std::span<const Copy> up, const Event* ready);
  /// Whether what was to come down is there.
  bool is_full();
  /// Copies the results up, once it is full. Whether they are all on the device, which ends the
  /// use.
  bool drain();
  /// The same, of what lies in the first `bytes` of the mirror.
  bool drain_first(std::size_t bytes);

  /// Copies are under way, which must be polled for.
  bool is_copying() const { return state_ == State::kFilling || state_ == State::kDraining; }
  /// The next use may begin.
  bool is_idle() const { return state_ == State::kIdle; }

 private:
  enum class State : std::uint8_t { kIdle, kFilling, kFull, kDraining };

  BufferView here(const Copy& copy) const;
  bool is_copied() const { return copied_->done(); }

  CopyLane& lane_;
  DeviceMemory memory_;
  std::unique_ptr<Event> copied_;
  std::vector<Copy> up_;
  State state_ = State::kIdle;
};

}  // namespace kolo
