#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kolo {

/// Facts about one tensor at the end of a step that are equal on all ranks.
struct WireReport {
  std::uint16_t largest =
      0;  ///< Largest magnitude in the result, as received, in the bits of float16.
  /// In the previous step, some rank had values that exceeded the wire, or values that all became
  /// zero.
  bool was_too_large = false;
  bool was_too_small = false;
};

/// The power of two by which one tensor's values are multiplied on a float16 wire, step by step.
///
/// All ranks must scale alike without communicating, so a step's exponent follows from earlier
/// *results*, which all ranks have. It puts the largest result well below the largest float16. The
/// room above is for growth between steps, and for contributions larger than their mean. Powers of
/// two change no bit of normal numbers: the exponent matters only at the ends of the range.
///
/// The exponent falls at once as far as necessary, and rises by one per step, so that a quiet step
/// does not make the next one saturate. A tensor that saturates at such an exponent gets more room
/// permanently. While results are zero or at the end of the range, so that nothing is known, the
/// exponent moves in large steps.
///
/// Threads: pure. Source: delayed scaling of FP8 training (Micikevicius et al., 2022), with results
///          in place of each rank's maxima.
class WireScale {
 public:
  /// Starts at 2^0.
  explicit WireScale(int ranks);

  int exponent() const { return memory_.exponent; }

  /// Ends a step that used `exponent()`.
  void step(const WireReport& report);

  /// State from earlier steps, with which a scale continues where that of a job with the same
  /// number of ranks stopped. With another number of ranks it keeps the larger room.
  struct Memory {
    int exponent = 0;
    int room = 0;              ///< Powers of two above the largest result.
    bool is_settled = false;   ///< A result has determined the exponent.
    bool was_settled = false;  ///< As `is_settled`, for the previous step.
    friend bool operator==(const Memory&, const Memory&) = default;
  };
  const Memory& memory() const { return memory_; }
  /// Before: `is_possible`.
  void resume(const Memory& memory);
  /// True if a scale may have these values.
  static bool is_possible(std::int64_t exponent, std::int64_t room);

 private:
  Memory memory_;
};

/// The state of one tensor on a 16-bit wire.
struct WireTensor {
  WireScale scale;
  WireReport heard = {};         ///< Reports received in this step so far.
  std::size_t unpacked = 0;      ///< Unpacked elements, including the lanes.
  bool told_too_large = false;   ///< Reported by this rank for the last step.
  bool told_too_small = false;   ///< Likewise.
  bool is_too_large = false;     ///< Some value on this rank exceeded the wire.
  bool may_be_too_small = true;  ///< The last result was zero, so the next two members are kept.
  bool has_values = false;       ///< Some values are not zero on this rank.
  bool sends_values = false;     ///< Some values are not zero on the wire.
};

/// The part that outlives a step, for a checkpoint.
struct WireMemory {
  WireScale::Memory scale = {};
  bool told_too_large = false;
  bool told_too_small = false;
  bool may_be_too_small = true;
  friend bool operator==(const WireMemory&, const WireMemory&) = default;
};

/// State that a set of tensors carries from step to step, independent of buckets, because plans may
/// change between two steps.
///
/// Threads: the executor's; between steps any. `too_large`: any.
class WireState {
 public:
  WireState(std::size_t tensors, int ranks)
      : tensors_(tensors, WireTensor{.scale = WireScale(ranks)}) {}

  WireTensor& tensor(std::size_t index) { return tensors_.at(index); }

  WireMemory memory(std::size_t index) const {
    const WireTensor& tensor = tensors_.at(index);
    return {.scale = tensor.scale.memory(),
            .told_too_large = tensor.told_too_large,
            .told_too_small = tensor.told_too_small,
            .may_be_too_small = tensor.may_be_too_small};
  }
  /// Before: as `WireScale::resume`.
  void resume(std::size_t index, const WireMemory& memory) {
    WireTensor& tensor = tensors_.at(index);
    tensor.scale.resume(memory.scale);
    tensor.told_too_large = memory.told_too_large;
    tensor.told_too_small = memory.told_too_small;
    tensor.may_be_too_small = memory.may_be_too_small;
  }

  /// Adds to `too_large`. Returns true for the first such values.
  bool add_too_large(std::size_t count) {
    return too_large_.fetch_add(count, std::memory_order_relaxed) == 0;
  }
  /// Number of this rank's values, over all steps, that exceeded the wire. Threads: any.
  std::uint64_t too_large() const { return too_large_.load(std::memory_order_relaxed); }

 private:
  std::vector<WireTensor> tensors_;
  std::atomic<std::uint64_t> too_large_{0};
};

}  // namespace kolo
