#pragma once

#include <cstddef>

#include "trainer/precision/loss_scaler.h"

namespace kolo::trainer {

/// What becomes of a step.
struct UpdateVerdict {
  double gradient_norm = 0.0;   ///< Of the averages, unscaled and before clipping.
  float gradient_scale = 1.0f;  ///< What the optimizer multiplies gradients by.
  bool is_skipped = false;      ///< Parameters and moments stay as they are.
};

/// Stands between the averages and the update: clips them, and skips steps that overflowed.
///
/// An infinite or missing number (Inf, NaN) of any rank survives the sum over ranks and makes the
/// norm of the averages one too. Ranks hold the same averages, so they all skip together without
/// another exchange.
///
/// Threads: one; no I/O.
class UpdateGate {
 public:
  struct Options {
    double clip_norm = 0.0;  ///< Limit of the global norm of the averages; 0: none.
    LossScaler::Options loss_scale = {};
  };

  explicit UpdateGate(const Options& options);

  double clip_norm() const { return clip_norm_; }
  /// The factor that the next loss is multiplied by.
  float loss_scale() const { return scaler_.scale(); }

  /// Before: `scaled_norm` is that of averages which still carry loss_scale().
  /// Errors: as `record`.
  UpdateVerdict judge(double scaled_norm);

  /// In place of `judge` where the device has decided whether the step is skipped.
  /// Errors: KoloError(kInternal) for an overflow without a loss scale that could help.
  void record(bool has_overflowed);

 private:
  double clip_norm_;
  LossScaler scaler_;
};

}  // namespace kolo::trainer
