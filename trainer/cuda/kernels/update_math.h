#pragma once

#include <cmath>
#include <cstdint>

#include "trainer/cuda/kernels/portable.h"

namespace kolo::trainer::cuda {

/// The decision about an optimizer's step, made on the device before the step.
struct UpdateDecision {
  double gradient_norm = 0.0;     ///< Norm of all gradients times gradient_scale.
  std::uint64_t steps = 0;        ///< Number of updates, not counting skipped ones.
  float gradient_factor = 0.0f;   ///< Product of gradient_scale and the clipping factor.
  float bias_correction1 = 0.0f;  ///< AdamW: 1 / (1 - beta1^steps)
  float bias_correction2 = 0.0f;
  std::uint32_t is_skipped = 0;
};

struct DecisionRule {
  float gradient_scale;
  double clip_norm;  ///< 0: none.
  float beta1;       ///< 0 without moments.
  float beta2;
};

KOLO_HOST_DEVICE inline float bias_correction(float beta, std::uint64_t steps) {
  return static_cast<float>(1.0 /
                            (1.0 - pow(static_cast<double>(beta), static_cast<double>(steps))));
}

/// Computes the next decision from the last one. An infinite or NaN sum of squares, or
/// `is_overflown`, skips the step.
KOLO_HOST_DEVICE inline UpdateDecision decide(const UpdateDecision& last, const DecisionRule& rule,
                                              double sum_of_squares, bool is_overflown) {
  UpdateDecision next;
  next.gradient_norm = sqrt(sum_of_squares) * static_cast<double>(rule.gradient_scale);
  next.is_skipped = is_overflown || !(sum_of_squares <= 1.7976931348623157e308) ? 1 : 0;
  next.steps = last.steps + (next.is_skipped != 0 ? 0 : 1);
  next.gradient_factor = rule.gradient_scale;
  if (rule.clip_norm > 0.0 && next.gradient_norm > rule.clip_norm) {
    next.gradient_factor *= static_cast<float>(rule.clip_norm / next.gradient_norm);
  }
  next.bias_correction1 = bias_correction(rule.beta1, next.steps);
  next.bias_correction2 = bias_correction(rule.beta2, next.steps);
  return next;
}

struct AdamWRates {
  float lr;
  float beta1;
  float beta2;
  float epsilon;
  float weight_decay;
};

/// Updates one element, with the roundings of trainer/kernels/update.cc on a processor with fused
/// multiply-add.
KOLO_HOST_DEVICE inline void adamw_element(const AdamWRates& rates, const UpdateDecision& decision,
                                           float weight_decay, float gradient, float& m, float& v,
                                           float& value) {
  const float g = gradient * decision.gradient_factor;
  m = fmaf(1.0f - rates.beta1, g - m, m);
  v = fmaf(1.0f - rates.beta2, g * g - v, v);
  const float root = sqrtf(v * decision.bias_correction2);
  const float direction = (m * decision.bias_correction1) / (root + rates.epsilon);
  value = fmaf(-fmaf(value, weight_decay, direction), rates.lr, value);
}

struct SgdRates {
  float lr;
  float momentum;
  float weight_decay;
};

KOLO_HOST_DEVICE inline void sgd_element(const SgdRates& rates, const UpdateDecision& decision,
                                         float weight_decay, float gradient, float& velocity,
                                         float& value) {
  const float g = fmaf(value, weight_decay, gradient * decision.gradient_factor);
  velocity = fmaf(velocity, rates.momentum, g);
  value = fmaf(-velocity, rates.lr, value);
}

}  // namespace kolo::trainer::cuda
