#pragma once

#include <cstddef>

namespace kolo::trainer {

/// The factor on the loss, and so on every gradient, that lifts small gradients into the range of a
/// 16-bit float. The update divides by it again.
///
/// A dynamic scale probes for the largest one that fits: it halves after a step whose gradients
/// overflowed, which is not taken, and doubles after a number of clean ones. All ranks that see the
/// same outcomes have the same scale.
///
/// Threads: one; no I/O.
/// Source:  Micikevicius et al., "Mixed Precision Training", ICLR 2018, section 3.2.
class LossScaler {
 public:
  enum class Mode {
    kOff,      ///< The factor is 1.
    kFixed,    ///< Always the same factor.
    kDynamic,  ///< Follows what gradients allow.
  };

  struct Options {
    Mode mode = Mode::kOff;
    float scale = 65536.0f;  ///< At first; greater than 0, finite.
    std::size_t clean_steps_to_double = 2000;
  };

  /// What a checkpoint keeps.
  struct State {
    float scale = 1.0f;
    std::size_t clean_steps = 0;  ///< Since the scale changed last.
    friend bool operator==(const State&, const State&) = default;
  };

  /// Bounds of a dynamic scale.
  static constexpr float kLeast = 1.0f;
  static constexpr float kMost = 16777216.0f;  // 2^24

  /// Errors: UsageError for a scale that is not finite and positive.
  explicit LossScaler(const Options& options);

  float scale() const { return state_.scale; }
  /// Whether a step that overflows at this scale may be skipped, in the hope that later ones will
  /// not: not without a scale, nor at the lower bound.
  bool can_skip() const;

  /// After a step with the present scale.
  void update(bool has_overflowed);

  const State& state() const { return state_; }
  void restore(const State& state);

 private:
  Options options_;
  State state_;
};

}  // namespace kolo::trainer
