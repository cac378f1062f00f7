#include "trainer/optimizer/update_gate.h"

#include <cmath>

#include "trainer/kernels/kernels.h"

namespace kolo::trainer {

double sum_of_squares(const Parameter& parameter) {
  double squares = 0.0;
  parameter.visit_gradient(
      [&](std::size_t, std::span<const float> part) { squares += sum_of_squares(part); });
  return squares;
}

double gradient_norm(const ParameterSet& parameters) {
  double squares = 0.0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    squares += sum_of_squares(parameters[i]);
  }
  return std::sqrt(squares);
}

float clip_factor(double norm, double limit) {
  if (limit <= 0.0 || norm <= limit) return 1.0f;
  return static_cast<float>(limit / norm);
}

UpdateGate::UpdateGate(const Options& options)
    : clip_norm_(options.clip_norm), scaler_(options.loss_scale) {}

void UpdateGate::visit_state(StateVisitor& visitor) {
  LossScaler::State state = scaler_.state();
  std::uint64_t steps = state.steps;
  visitor.shared("loss_scale", state.scale);
  visitor.shared("loss_scale.clean_steps", steps);
  if (!visitor.is_restoring()) return;
  state.steps = steps;
  scaler_.restore(state);
}

UpdateVerdict UpdateGate::judge(double scaled_norm) {
  const float scale = scaler_.scale();
  const double norm = scaled_norm / static_cast<double>(scale);
  const bool is_skipped = !std::isfinite(scaled_norm);
  return {.gradient_norm = norm,
          .gradient_scale = clip_factor(norm, clip_norm_) / scale,
          .is_skipped = is_skipped,
          .has_diverged = record(is_skipped)};
}

bool UpdateGate::record(bool has_overflowed) {
  const bool has_diverged = has_overflowed && !scaler_.can_skip();
  scaler_.update(has_overflowed);
  return has_diverged;
}

}  // namespace kolo::trainer
