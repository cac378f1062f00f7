#pragma once

#include <cstdint>

namespace kolo {

/// What all ranks know alike about one tensor at the end of a step.
struct WireReport {
  std::uint16_t largest = 0;  ///< Magnitude in the result, in the bits of float16 as it came.
  /// In the step before, some rank had values that the wire could not hold, or had values of which
  /// all became zero.
  bool was_too_large = false;
  bool was_too_small = false;
};

/// The power of two that one tensor's values are multiplied by on a float16 wire, step by step.
///
/// All ranks must scale alike, and ask nobody; so a step's exponent follows from former *results*,
/// which all ranks have. It puts the largest one well below the largest float16. What is left above
/// is room for growth between steps, and for contributions that are larger than their mean. Powers
/// of two change no bit of normal numbers: the exponent matters at the ends of the range only.
///
/// It falls as far as it must at once and rises by one a step: a quiet step does not make the next
/// one saturate. A tensor that saturates at an exponent found so gets more room, and keeps it.
/// While nothing is known, because results are zero or at the end of the range, it takes long
/// strides.
///
/// Threads: pure. Source: delayed scaling of FP8 training (Micikevicius et al., 2022), with results
/// in place of each rank's maxima.
class WireScale {
 public:
  /// Starts at 2^0.
  explicit WireScale(int ranks);

  int exponent() const { return memory_.exponent; }

  /// The end of a step that used `exponent()`.
  void step(const WireReport& report);

  /// What follows from former steps: with it a scale goes on where another one of as many ranks
  /// stopped. Among other ranks it keeps the larger room.
  struct Memory {
    int exponent = 0;
    int room = 0;              ///< Powers of two above the largest result.
    bool is_settled = false;   ///< A result told what the exponent should be;
    bool was_settled = false;  ///< the same of the step before.
    friend bool operator==(const Memory&, const Memory&) = default;
  };
  const Memory& memory() const { return memory_; }
  /// Before: `is_possible`.
  void resume(const Memory& memory);
  /// Whether a scale may have these.
  static bool is_possible(std::int64_t exponent, std::int64_t room);

 private:
  Memory memory_;
};

}  // namespace kolo
