#pragma once

#include "trainer/checkpoint/state_visitor.h"
#include "trainer/parameter_set.h"
#include "trainer/precision/precision.h"

namespace kolo::trainer {

/// The sum of the squares of a parameter's gradient.
double sum_of_squares(const Parameter& parameter);

/// The Euclidean norm of all gradients, taken as one vector.
double gradient_norm(const ParameterSet& parameters);

/// The factor that reduces `norm` to at most `limit`; 1 if there is no limit (0).
float clip_factor(double norm, double limit);

/// The decision whether a step is skipped, and how its gradients are scaled.
struct UpdateVerdict {
  double gradient_norm = 0.0;   ///< Norm of the averages without loss scale, before clipping.
  float gradient_scale = 1.0f;  ///< Factor that the optimizer applies to gradients.
  bool is_skipped = false;      ///< Whether the step changes neither parameters nor moments.
  bool has_diverged = false;    ///< Whether training has failed: the step overflowed, and no lower
                                ///< loss scale can be tried.
};

/// Decides between averaging and update: clips gradients, and skips steps that overflowed.
///
/// An infinity or NaN on any rank survives the sum over ranks and makes the norm of the averages
/// infinite or NaN. All ranks compute the same norm, so all skip the same steps.
///
/// Threads: one; no I/O.
class UpdateGate final : public Stateful {
 public:
  struct Options {
    double clip_norm = 0.0;  ///< Largest norm of all averages together; 0: no limit.
    LossScaler::Options loss_scale = {};
  };

  explicit UpdateGate(const Options& options);

  void visit_state(StateVisitor& visitor) override;

  double clip_norm() const { return clip_norm_; }
  /// The factor of the loss in the next step.
  float loss_scale() const { return scaler_.scale(); }

  /// Decides about a step and updates the loss scale. Before: `scaled_norm` is the norm of averages
  /// that contain the factor loss_scale().
  UpdateVerdict judge(double scaled_norm);

  /// Replaces `judge` if the device decides about skipping: updates the loss scale. Returns whether
  /// training has diverged: the step overflowed, and no lower loss scale can be tried.
  [[nodiscard]] bool record(bool has_overflowed);

 private:
  double clip_norm_;
  LossScaler scaler_;
};

}  // namespace kolo::trainer
