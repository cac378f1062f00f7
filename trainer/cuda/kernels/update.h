#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "comm/base/dtype.h"
#include "comm/base/native_stream.h"
#include "trainer/cuda/kernels/portable.h"

namespace kolo::trainer::cuda {

/// The decision about an optimizer step, which the device makes before the step.
struct UpdateDecision {
  double gradient_norm = 0.0;     ///< Norm of all gradients, times gradient_scale.
  std::uint64_t steps = 0;        ///< Number of updates that were not skipped.
  float gradient_factor = 0.0f;   ///< Product of gradient_scale and the clipping factor.
  float bias_correction1 = 0.0f;  ///< For AdamW: 1 / (1 - beta1^steps).
  float bias_correction2 = 0.0f;
  std::uint32_t is_skipped = 0;
};

struct DecisionRule {
  float gradient_scale;
  double clip_norm;  ///< Limit of the norm; 0: no limit.
  float beta1;       ///< Decay of the first moment; unused by SGD.
  float beta2;
};

KOLO_HOST_DEVICE inline float bias_correction(float beta, std::uint64_t steps) {
  return static_cast<float>(1.0 /
                            (1.0 - pow(static_cast<double>(beta), static_cast<double>(steps))));
}

/// Computes the next decision from the last one. An infinite or NaN sum of squares skips the step.
KOLO_HOST_DEVICE inline UpdateDecision decide(const UpdateDecision& last, const DecisionRule& rule,
                                              double sum_of_squares) {
  UpdateDecision next;
  next.gradient_norm = sqrt(sum_of_squares) * static_cast<double>(rule.gradient_scale);
  next.is_skipped = sum_of_squares <= 1.7976931348623157e308 ? 0 : 1;
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
  bool follows = false;  ///< Whether the gradient is a direction; see Optimizer::follow.
};

/// Updates one element, with the same roundings as trainer/kernels/vector.cc on a processor with
/// fused multiply-add.
KOLO_HOST_DEVICE inline void adamw_element(const AdamWRates& rates, const UpdateDecision& decision,
                                           float gradient, float& m, float& v, float& value) {
  const float g = gradient * decision.gradient_factor;
  if (rates.follows) {
    m = fmaf(value, rates.weight_decay, g);
    value = fmaf(-m, rates.lr, value);
    return;
  }
  m = fmaf(1.0f - rates.beta1, g - m, m);
  v = fmaf(1.0f - rates.beta2, g * g - v, v);
  const float root = sqrtf(v * decision.bias_correction2);
  const float direction = (m * decision.bias_correction1) / (root + rates.epsilon);
  value = fmaf(-fmaf(value, rates.weight_decay, direction), rates.lr, value);
}

struct SgdRates {
  float lr;
  float momentum;
  float weight_decay;
};

KOLO_HOST_DEVICE inline void sgd_element(const SgdRates& rates, const UpdateDecision& decision,
                                         float gradient, float& velocity, float& value) {
  const float g = fmaf(value, rates.weight_decay, gradient * decision.gradient_factor);
  velocity = fmaf(velocity, rates.momentum, g);
  value = fmaf(-velocity, rates.lr, value);
}

/// A piece of one parameter that one block updates. It is plain data in device memory.
struct UpdateChunk {
  const void* gradient = nullptr;  ///< Address of the gradient of the piece's first element.
  std::uint64_t offset = 0;        ///< Index of the first element in values and copies.
  std::uint64_t state = 0;         ///< Index of the first element in the moments.
  std::uint32_t count = 0;
  std::uint32_t decays = 0;   ///< 1 if weight decay applies, otherwise 0.
  std::uint32_t follows = 0;  ///< 1 if the gradient is a direction, otherwise 0.
};

// These return the rates of a chunk. With SGD, one that follows directions decays as strongly as
// with momentum.

KOLO_HOST_DEVICE inline AdamWRates rates_of(AdamWRates rates, const UpdateChunk& chunk) {
  if (chunk.decays == 0) rates.weight_decay = 0.0f;
  rates.follows = chunk.follows != 0;
  return rates;
}

KOLO_HOST_DEVICE inline SgdRates rates_of(SgdRates rates, const UpdateChunk& chunk) {
  if (chunk.decays == 0) rates.weight_decay = 0.0f;
  if (chunk.follows == 0) return rates;
  rates.weight_decay /= 1.0f - rates.momentum;
  rates.momentum = 0.0f;
  return rates;
}

// These are the elements of second_moment_update and adam_direction in trainer/kernels/vector.cc.

KOLO_HOST_DEVICE inline float second_moment(float beta2, float gradient, float v) {
  return fmaf(1.0f - beta2, gradient * gradient - v, v);
}
KOLO_HOST_DEVICE inline float adam_direction(float gradient, float v, float moment_scale,
                                             float epsilon) {
  return gradient / (sqrtf(v * moment_scale) + epsilon);
}

/// Number of elements of a full chunk. Chunks begin at multiples of it within their parameter. If
/// parameters and gradients are aligned to 16 bytes, all accesses except those to the last elements
/// are aligned, too.
inline constexpr std::size_t kUpdateChunk = 8192;

/// The arrays of all parameters on the device, and the chunks that this rank updates.
struct UpdateArrays {
  const UpdateChunk* chunks;
  std::size_t chunk_count;
  float* values;
  float* first;   ///< First moment of AdamW, or velocity of SGD.
  float* second;  ///< Second moment of AdamW; null for SGD.
  DType copy_dtype;
  void* copy;  ///< Values rounded to copy_dtype; null if there is no copy.
  DType gradient_dtype = DType::kFloat32;  ///< kFloat32 or kBFloat16, which is widened.
};

/// Computes the sum of squares of the gradients of each chunk in a fixed order, in float32 for the
/// 32 elements of a thread and in float64 across threads.
///
/// Shape: sums is [chunk_count], in device memory.
void sum_squares(NativeStream stream, const UpdateArrays& arrays, double* sums);
/// Adds up `count` sums in a fixed order; there may be none.
void add_up(NativeStream stream, const double* sums, std::size_t count, double* total);
/// Decides with `decide` from the total of `count` sums.
void decide_update(NativeStream stream, const double* sums, std::size_t count,
                   const DecisionRule& rule, UpdateDecision* decision);

/// These update all parameters in one launch, unless the decision is to skip. AdamW with a 16-bit
/// copy reads and writes 30 bytes per parameter; 28 with bfloat16 gradients.
///
/// Bits: equal to the reference, except for 16-bit NaNs.
void update_adamw(NativeStream stream, const UpdateArrays& arrays, const AdamWRates& rates,
                  const UpdateDecision* decision);
void update_sgd(NativeStream stream, const UpdateArrays& arrays, const SgdRates& rates,
                const UpdateDecision* decision);

/// Arrays of one parameter for the second moment of this rank's gradients; see `OwnDirections`.
struct MomentArrays {
  float* gradient;
  const float* moment;
  float* next;
  std::size_t count;
};
struct MomentRates {
  float beta2;
  float epsilon;
  double correction;       ///< Bias correction of the next moment.
  const double* survival;  ///< A factor of the moment, in device memory; null to keep the gradient.
};

/// Computes the next moment and, if there is a factor, replaces the gradient by its direction.
/// Bits: those of second_moment_update and adam_direction with fused multiply-add.
void enter_moment(NativeStream stream, const MomentArrays& arrays, const MomentRates& rates);
/// Computes energy = beta2 · energy + (1 - beta2) · total of `count` sums, unless the step is
/// skipped.
void measure_average(NativeStream stream, const double* sums, std::size_t count, float beta2,
                     const UpdateDecision* decision, double* energy);
/// Computes survival = energy / sum of the moment, or 1 if one of them is 0.
void measure_survival(NativeStream stream, const float* moment, std::size_t count,
                      const double* energy, double* survival);

}  // namespace kolo::trainer::cuda
