#pragma once

#include <cstdint>

namespace kolo {

/// Facts about one tensor at the end of a step that are equal on all ranks.
struct WireReport {
  std::uint16_t largest =
      0;  ///< Largest magnitude in the result, as received, in the bits of float16.
  /// True if, in the step before, some rank had values that exceeded the wire, or values that all
  /// became zero.
  bool was_too_large = false;
  bool was_too_small = false;
};

/// The power of two by which one tensor's values are multiplied on a float16 wire, step by step.
///
/// All ranks must scale alike without asking each other, so a step's exponent follows from former
/// *results*, which all ranks have. It puts the largest result well below the largest float16. The
/// room above is for growth between steps, and for contributions larger than their mean. Powers of
/// two change no bit of normal numbers: the exponent matters only at the ends of the range.
///
/// The exponent falls at once as far as it must, and rises by one per step, so that a quiet step
/// does not make the next one saturate. A tensor that saturates at an exponent found in this manner
/// gets more room, and keeps it. While nothing is known, because results are zero or at the end of
/// the range, the exponent moves in long strides.
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

  /// State from former steps: with it a scale continues where that of a job with as many ranks
  /// stopped. With another number of ranks it keeps the larger room.
  struct Memory {
    int exponent = 0;
    int room = 0;              ///< Powers of two above the largest result.
    bool is_settled = false;   ///< A result determined the exponent.
    bool was_settled = false;  ///< The same, in the step before.
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

}  // namespace kolo
