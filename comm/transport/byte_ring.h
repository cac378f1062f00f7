#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace kolo {

/// A queue of bytes with one writer and one reader, in memory that both map. Positions only
/// increase; position p is stored at index p modulo the capacity.
///
///            tail (reader)      head (writer)
///               v                  v
///   [ . . . . . x x x x x x x x x . . . ]     x: written and not yet read
///
/// A writer that finds the ring full sets a mark with `await_room`; the reader then has to ring the
/// writer's doorbell. Both sides exchange the mark atomically. If the writer sets it before the
/// reader's check, the reader sees it; if later, the writer sees the room that the reader has made.
///
/// Threads: one writer, one reader. A ring in zeroed memory is valid and empty.
class ByteRing {
 public:
  /// The control block at the start of the shared memory; the ring's bytes follow it.
  struct Control {
    alignas(64) std::atomic<std::uint64_t> head{0};
    alignas(64) std::atomic<std::uint64_t> tail{0};
    alignas(64) std::atomic<std::uint32_t> writer_waits{0};
  };

  static constexpr std::size_t footprint(std::size_t capacity) {
    return sizeof(Control) + capacity;
  }

  ByteRing() = default;
  /// `memory` has footprint(capacity) bytes, aligned to 64. `capacity` in bytes is a power of two.
  ByteRing(std::byte* memory, std::size_t capacity)
      : control_(reinterpret_cast<Control*>(memory)),
        bytes_(memory + sizeof(Control)),
        capacity_(capacity) {}

  std::size_t capacity() const { return capacity_; }

  // --- Writer ---------------------------------------------------------------------------------

  std::size_t room() const {
    return capacity_ - used(control_->head.load(std::memory_order_relaxed),
                            control_->tail.load(std::memory_order_acquire));
  }

  /// Appends as much of `data` as fits; returns the number of bytes appended.
  std::size_t write(std::span<const std::byte> data) {
    const std::uint64_t head = control_->head.load(std::memory_order_relaxed);
    const std::size_t count = std::min(data.size(), room());
    const auto [first, second] = split(head, count);
    if (first != 0) std::memcpy(bytes_ + place(head), data.data(), first);
    if (second != 0) std::memcpy(bytes_, data.data() + first, second);
    control_->head.store(head + count, std::memory_order_release);
    return count;
  }

  /// Asks the reader to ring when there is room. Returns true if there is room already.
  bool await_room() {
    control_->writer_waits.exchange(1, std::memory_order_acq_rel);
    return room() != 0;
  }

  // --- Reader ---------------------------------------------------------------------------------

  std::size_t readable() const {
    return used(control_->head.load(std::memory_order_acquire),
                control_->tail.load(std::memory_order_relaxed));
  }

  /// Reads up to `data.size()` bytes; returns the number of bytes read.
  std::size_t read(std::span<std::byte> data) {
    const std::uint64_t tail = control_->tail.load(std::memory_order_relaxed);
    const std::size_t count = std::min(data.size(), readable());
    const auto [first, second] = split(tail, count);
    if (first != 0) std::memcpy(data.data(), bytes_ + place(tail), first);
    if (second != 0) std::memcpy(data.data() + first, bytes_, second);
    control_->tail.store(tail + count, std::memory_order_release);
    return count;
  }

  /// Whether the writer waits for room; then the reader must ring the writer's doorbell. Returns
  /// true once per wait.
  bool take_writer_waits() {
    return control_->writer_waits.exchange(0, std::memory_order_acq_rel) != 0;
  }

 private:
  struct Pieces {
    std::size_t first;
    std::size_t second;
  };

  std::size_t place(std::uint64_t position) const {
    return static_cast<std::size_t>(position) & (capacity_ - 1);
  }
  Pieces split(std::uint64_t position, std::size_t count) const {
    const std::size_t first = std::min(count, capacity_ - place(position));
    return {first, count - first};
  }
  /// Returns the number of unread bytes: at most the capacity, even if positions are invalid.
  std::size_t used(std::uint64_t head, std::uint64_t tail) const {
    return static_cast<std::size_t>(std::min<std::uint64_t>(head - tail, capacity_));
  }

  Control* control_ = nullptr;
  std::byte* bytes_ = nullptr;
  std::size_t capacity_ = 0;
};

}  // namespace kolo
