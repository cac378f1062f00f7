#pragma once

#include <cstddef>
#include <string>

#include "comm/base/dtype.h"

namespace kolo::trainer {

/// The loss scale: a factor of the loss, and so of every gradient, that moves small gradients into
/// the range of a 16-bit float. The update divides by it.
///
/// A dynamic scale searches for the largest usable value: it halves after a step whose gradients
/// overflowed, which is skipped, and doubles after a number of successful steps. Ranks with the
/// same overflows have the same scale.
///
/// Threads: one; no I/O.
/// Source:  Micikevicius et al., "Mixed Precision Training", ICLR 2018, section 3.2.
class LossScaler {
 public:
  enum class Mode {
    kOff,      ///< The factor is 1.
    kFixed,    ///< The factor never changes.
    kDynamic,  ///< The factor adapts to the gradients.
  };

  struct Options {
    Mode mode = Mode::kOff;
    float scale = 65536.0f;  ///< Initial value; finite and greater than 0.
    std::size_t clean_steps_to_double = 2000;
  };

  /// The state that a checkpoint stores.
  struct State {
    float scale = 1.0f;
    /// Steps without overflow since a dynamic scale last changed; overflows in a row at a fixed
    /// one.
    std::size_t steps = 0;
    friend bool operator==(const State&, const State&) = default;
  };

  /// Bounds of a dynamic scale.
  static constexpr float kLeast = 1.0f;
  static constexpr float kMost = 16777216.0f;  // 2^24
  /// Steps in a row that may overflow at a fixed scale, which skipping them does not lower.
  static constexpr int kMostOverflows = 100;

  /// Errors: UsageError for a scale that is not finite and positive.
  explicit LossScaler(const Options& options);

  float scale() const { return state_.scale; }
  /// Whether a step that overflows at this scale may be skipped: with a fixed scale after fewer
  /// than `kMostOverflows` overflows in a row, with a dynamic scale above the lower bound, and
  /// never without a scale.
  bool can_skip() const;

  /// Adapts the scale. Call after each step.
  void update(bool has_overflowed);

  const State& state() const { return state_; }
  void restore(const State& state);

 private:
  Options options_;
  State state_;
};

/// Parses the dtype of the operands of a model's products: float32, bfloat16 or float16; see Note
/// [Mixed precision] in this folder. Errors: UsageError naming the choices.
DType parse_precision(const std::string& text);

/// Parses the dtype of gradients: float32 or bfloat16. Before: `text` is not "auto". Errors:
/// UsageError naming the choices.
DType parse_gradients(const std::string& text);

/// Parses "off", "dynamic", a number, or "auto". "auto" is dynamic for float16, whose range is too
/// small for gradients, and off for dtypes with the range of float32. Errors: KoloError(kConfig)
/// naming the choices.
LossScaler::Options parse_loss_scale(const std::string& text, DType precision);

}  // namespace kolo::trainer
