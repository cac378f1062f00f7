#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "comm/base/error.h"
#include "comm/transport/byte_ring.h"
#include "comm/transport/doorbell.h"
#include "comm/transport/transport.h"

namespace kolo {

/// The error with which a rank gives up, in shared memory: peers can read it even after the rank
/// has ended. The cell also names the verb in which the rank is stuck. A zeroed cell is valid and
/// empty.
///
/// Threads: any, of any process; one for `note_stuck`.
class ErrorCell {
 public:
  static constexpr std::size_t kMostBytes = 1000;
  static constexpr std::size_t kVerbBytes = sizeof(std::uint64_t);

  /// Stores the error, truncated if it is too long. Does nothing if the cell holds one already.
  void write(const Error& error);

  bool is_written() const { return state_.load(std::memory_order_acquire) == State::kWritten; }
  /// Returns the stored error, if it is complete and valid.
  std::optional<Error> read() const;

  /// Stores the first `kVerbBytes` bytes of the verb in which the rank is stuck. An empty verb
  /// means that the rank is not stuck.
  void note_stuck(std::string_view verb);
  /// Returns the verb in which the rank is stuck; empty if the rank is not stuck.
  std::string stuck_in() const;

 private:
  enum class State : std::uint32_t { kEmpty, kBeingWritten, kWritten };

  std::atomic<std::uint64_t> stuck_in_{0};  // the letters of the verb
  std::atomic<State> state_{State::kEmpty};
  std::uint32_t size_ = 0;  // `size_` and `bytes_` do not change in state kWritten
  std::array<std::byte, kMostBytes> bytes_{};
};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
              std::atomic<std::uint64_t>::is_always_lock_free);

/// The layout of one rank's memory. Every rank of a node computes the same offsets. The parts
/// before `data` are committed when the rank starts; `writer` is a local rank.
///
///   doorbell | error | flags [writer]{slots, reads} | counters | rings [writer]{control, data} |
///   data, aligned to a page
class ShmLayout {
 public:
  static constexpr std::size_t kDataRingBytes = std::size_t{1} << 18;
  static constexpr std::size_t kControlRingBytes = std::size_t{1} << 14;

  ShmLayout(const TransportLimits& limits, std::size_t local_size);

  std::size_t error_offset() const { return error_; }
  std::size_t flags_offset() const { return flags_; }
  std::size_t counters_offset() const { return counters_; }
  std::size_t control_ring_offset(std::size_t writer) const {
    return rings_ + writer * kRingPairBytes;
  }
  std::size_t data_ring_offset(std::size_t writer) const {
    return control_ring_offset(writer) + ByteRing::footprint(kControlRingBytes);
  }
  std::size_t data_offset() const { return data_; }
  std::size_t data_bytes() const { return data_bytes_; }
  std::size_t total_bytes() const { return total_; }

 private:
  static constexpr std::size_t kRingPairBytes =
      ByteRing::footprint(kControlRingBytes) + ByteRing::footprint(kDataRingBytes);

  std::size_t error_ = 0;
  std::size_t flags_ = 0;
  std::size_t counters_ = 0;
  std::size_t rings_ = 0;
  std::size_t data_ = 0;
  std::size_t data_bytes_ = 0;
  std::size_t total_ = 0;
};

/// Whether one process can read the memory of another process.
enum class Reads : std::uint64_t { kUnknown, kNo, kYes };

/// A view of one rank's memory, with accessors for its parts. The arena owns the bytes.
class ShmSegment {
 public:
  ShmSegment(std::byte* memory, const ShmLayout& layout, std::uint32_t flags_per_peer)
      : memory_(memory), layout_(&layout), flags_per_peer_(flags_per_peer) {}

  Doorbell& doorbell() const { return at<Doorbell>(0)[0]; }
  /// Holds the error with which this rank gave up.
  ErrorCell& error() const { return at<ErrorCell>(layout_->error_offset())[0]; }
  std::atomic<std::uint64_t>& flag(std::size_t writer, std::uint32_t slot) const {
    return flags(writer)[slot];
  }
  /// Whether local rank `writer` can read private memory of this rank; the value is a `Reads`.
  std::atomic<std::uint64_t>& reads(std::size_t writer) const {
    return flags(writer)[flags_per_peer_];
  }
  std::atomic<std::uint64_t>& counter(std::uint32_t index) const {
    return at<std::atomic<std::uint64_t>>(layout_->counters_offset())[index];
  }
  ByteRing control_ring(std::size_t writer) const {
    return {memory_ + layout_->control_ring_offset(writer), ShmLayout::kControlRingBytes};
  }
  ByteRing data_ring(std::size_t writer) const {
    return {memory_ + layout_->data_ring_offset(writer), ShmLayout::kDataRingBytes};
  }
  std::span<std::byte> data() const {
    return {memory_ + layout_->data_offset(), layout_->data_bytes()};
  }

 private:
  std::atomic<std::uint64_t>* flags(std::size_t writer) const {
    return at<std::atomic<std::uint64_t>>(layout_->flags_offset()) + writer * (flags_per_peer_ + 1);
  }
  template <typename Word>
  Word* at(std::size_t offset) const {
    return reinterpret_cast<Word*>(memory_ + offset);
  }

  std::byte* memory_;
  const ShmLayout* layout_;
  std::uint32_t flags_per_peer_;
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace kolo
