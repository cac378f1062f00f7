#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kolo {

/// Facts about one tensor at the end of a step. They are equal on all ranks.
struct WireReport {
  std::uint16_t largest = 0;  ///< Largest magnitude in the received result, as float16 bits.
  /// Whether some rank had values in the previous step that exceeded the wire dtype's range, or
  /// nonzero values that all became zero.
  bool was_too_large = false;
  bool was_too_small = false;
};

/// The power of two by which one tensor's values are multiplied on a float16 wire, for each step.
///
/// All ranks must use the same exponent without communicating, so it is computed from earlier
/// *results*, which are equal on all ranks. It puts the largest result well below the largest
/// float16. The room above is for growth between steps, and for contributions larger than their
/// mean. Powers of two change no bit of normal numbers, so the exponent matters only at the ends of
/// the range.
///
/// The exponent falls as far as necessary in one step, but rises by one per step, so that after a
/// step of small values the next step does not saturate. If a tensor saturates at such an exponent,
/// its room grows permanently. While results are zero or at the end of the range, the right
/// exponent is unknown, and the exponent moves in large steps.
///
/// Threads: pure. Source: delayed scaling of FP8 training (Micikevicius et al., 2022), with results
/// instead of each rank's maxima.
class WireScale {
 public:
  /// Starts with exponent 0.
  explicit WireScale(int ranks);

  int exponent() const { return memory_.exponent; }

  /// Ends a step that used `exponent()`, and computes the next exponent.
  void step(const WireReport& report);

  /// The state after earlier steps. A scale that resumes from it continues as the saved one if the
  /// number of ranks is the same. With another number of ranks it uses the larger room.
  struct Memory {
    int exponent = 0;
    /// The distance from the largest result to the largest float16, in powers of two.
    int room = 0;
    bool is_settled = false;   ///< A result has determined the exponent.
    bool was_settled = false;  ///< The value of `is_settled` one step earlier.
    friend bool operator==(const Memory&, const Memory&) = default;
  };
  const Memory& memory() const { return memory_; }
  /// Before: `is_possible` is true for these values.
  void resume(const Memory& memory);
  /// True if a scale can have these values.
  static bool is_possible(std::int64_t exponent, std::int64_t room);

 private:
  Memory memory_;
};

/// The state of one tensor on a 16-bit wire.
struct WireTensor {
  WireScale scale;
  WireReport heard = {};         ///< Reports received so far in this step.
  std::size_t unpacked = 0;      ///< Number of unpacked elements, including the report.
  bool told_too_large = false;   ///< This rank reports `was_too_large` in this step.
  bool told_too_small = false;   ///< This rank reports `was_too_small` in this step.
  bool is_too_large = false;     ///< Some value on this rank exceeded the wire dtype.
  bool may_be_too_small = true;  ///< The last result was zero, so the next two fields are computed.
  bool has_values = false;       ///< Some value on this rank is not zero.
  bool sends_values = false;     ///< Some value on this rank is not zero after the cast.
};

/// The part of a WireTensor that is kept between steps, for a checkpoint.
struct WireMemory {
  WireScale::Memory scale = {};
  bool told_too_large = false;
  bool told_too_small = false;
  bool may_be_too_small = true;
  friend bool operator==(const WireMemory&, const WireMemory&) = default;
};

/// The state of a set's tensors from step to step. It is independent of buckets, because plans may
/// change between two steps.
///
/// Threads: the executor's; any between steps. `too_large`: any.
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

  /// Adds `count` to `too_large`. Returns true if it was zero before.
  bool add_too_large(std::size_t count) {
    return too_large_.fetch_add(count, std::memory_order_relaxed) == 0;
  }
  /// Number of this rank's values, in all steps, that exceeded the wire dtype. Threads: any.
  std::uint64_t too_large() const { return too_large_.load(std::memory_order_relaxed); }

 private:
  std::vector<WireTensor> tensors_;
  std::atomic<std::uint64_t> too_large_{0};
};

}  // namespace kolo
