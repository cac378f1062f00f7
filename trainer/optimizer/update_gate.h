#pragma once

#include "trainer/checkpoint/state_visitor.h"
#include "trainer/parameter_set.h"
#include "trainer/precision/precision.h"

namespace kolo::trainer {

/// Sum of the squares of a parameter's gradient.
double sum_of_squares(const Parameter& parameter);

/// Euclidean norm of all gradients taken as one vector.
double gradient_norm(const ParameterSet& parameters);

/// Factor that scales gradients of norm `norm` down to at most `limit`; 1 if there is no limit (0).
float clip_factor(double norm, double limit);

/// The decision about a step.
struct UpdateVerdict {
  double gradient_norm = 0.0;   ///< Norm of the averages, unscaled and before clipping.
  float gradient_scale = 1.0f;  ///< Factor that the optimizer applies to gradients.
  bool is_skipped = false;      ///< Parameters and moments stay as they are.
  bool has_diverged = false;    ///< Skipped, and no lower loss scale can help: training has failed.
};

/// The step between averaging and update: clips gradients, and skips steps that overflowed.
///
/// An infinity or NaN on any rank survives the sum over ranks and makes the norm of the averages
/// infinite or NaN. All ranks compute the same norm, so they skip together.
///
/// Threads: one; no I/O.
class UpdateGate final : public Stateful {
 public:
  struct Options {
    double clip_norm = 0.0;  ///< Limit of the global norm of the averages; 0: none.
    LossScaler::Options loss_scale = {};
  };

  explicit UpdateGate(const Options& options);

  void visit_state(StateVisitor& visitor) override;

  double clip_norm() const { return clip_norm_; }
  /// Factor of the next loss.
  float loss_scale() const { return scaler_.scale(); }

  /// Before: `scaled_norm` is the norm of averages that still carry loss_scale().
  UpdateVerdict judge(double scaled_norm);

  /// Call instead of `judge` if the device has decided about skipping. Returns whether training has
  /// diverged, that is whether an overflow occurred that no lower loss scale can avoid.
  [[nodiscard]] bool record(bool has_overflowed);

 private:
  double clip_norm_;
  LossScaler scaler_;
};

}  // namespace kolo::trainer
