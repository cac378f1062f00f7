#pragma once

#include <span>

namespace kolo::trainer {

struct SgdStep {
  float lr;
  float momentum;
  float weight_decay;
  float gradient_scale;
  bool nesterov = false;
};

/// g = gradient_scale · gradient + weight_decay · value; velocity = momentum · velocity + g;
/// value -= lr · velocity, or with Nesterov's correction lr · (g + momentum · velocity).
/// Before: equal sizes.
void sgd_update(const SgdStep& step, std::span<const float> gradient, std::span<float> velocity,
                std::span<float> value);

struct AdamWStep {
  float lr;
  float beta1;
  float beta2;
  float epsilon;
  float weight_decay;
  float bias_correction1;  ///< 1 / (1 - beta1^t)
  float bias_correction2;  ///< 1 / (1 - beta2^t)
  float gradient_scale;
};

/// One step of AdamW with the moments m and v. Before: equal sizes.
/// Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, algorithm 2.
void adamw_update(const AdamWStep& step, std::span<const float> gradient, std::span<float> m,
                  std::span<float> v, std::span<float> value);

/// The direction in which `adamw_update` would move `value` by lr times it: the moments change,
/// `value` does not, and the direction replaces the gradient. Before: equal sizes.
void adamw_direction(const AdamWStep& step, std::span<float> gradient, std::span<float> m,
                     std::span<float> v, std::span<const float> value);

struct SecondMomentStep {
  float beta2;
  float square_scale;  ///< Factor of the squares of the gradient.
};

/// new_v = beta2 · v + (1 - beta2) · square_scale · gradient². Before: equal sizes.
void second_moment_update(const SecondMomentStep& step, std::span<const float> gradient,
                          std::span<const float> v, std::span<float> new_v);

struct AdamDirectionStep {
  float epsilon;
  float moment_scale;  ///< Factor of the second moment, such as 1 / (1 - beta2^t).
};

/// gradient /= sqrt(v · moment_scale) + epsilon. Before: equal sizes.
void adam_direction(const AdamDirectionStep& step, std::span<const float> v,
                    std::span<float> gradient);

}  // namespace kolo::trainer
