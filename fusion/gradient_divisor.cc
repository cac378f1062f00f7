#include "fusion/gradient_divisor.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo {
namespace {

void multiply(const BufferView& gradient, double factor) {
  rescale(gradient.dtype, gradient.data, gradient.count, factor);
}

}  // namespace

std::vector<GradientSpec> GradientDivisor::with_weights(std::vector<GradientSpec> gradients,
                                                        Divisor divisor) {
  if (divisor == Divisor::kAllRanks) return gradients;
  gradients.push_back({.name = "weights of ranks",
                       .shape = {gradients.size()},
                       .dtype = DType::kFloat64,
                       .wire_dtype = DType::kFloat64});
  return gradients;
}

GradientDivisor::GradientDivisor(Divisor divisor, std::span<const BufferView> views, int ranks)
    : divisor_(divisor),
      views_(views),
      ranks_(ranks),
      weight_(divisor == Divisor::kSamples ? -1 : 1) {}

void GradientDivisor::set_samples(double samples) {
  check(divisor_ == Divisor::kSamples, "set_samples() is for sets whose divisor is samples");
  check(std::isfinite(samples) && samples >= 0,
        fmt::format("{} samples; their number is finite and not negative", samples));
  weight_ = samples;
}

void GradientDivisor::check_weight() const {
  check(weight_ >= 0, "the divisor is samples; call set_samples() before the first ready()");
}

void GradientDivisor::contribute(std::size_t gradient) const {
  weights()[gradient] = weight_;
  if (weight_ > 0) {
    multiply(views_[gradient], weight_);
  } else {
    fill_identity(views_[gradient], ReduceOp::kSum);
  }
}

void GradientDivisor::divide() const {
  for (std::size_t i = 0; i + 1 < views_.size(); ++i) divide(i);
}

void GradientDivisor::divide(std::size_t gradient) const {
  const double by = factor(weights()[gradient]);
  if (by == 1) return;
  multiply(views_[gradient], by);
  weights()[gradient] = 1;
}

double GradientDivisor::factor(double average_weight) const {
  // Either no rank has the gradient, so that it is all zeros, or the weights are invalid.
  if (!(average_weight > 0) || !std::isfinite(average_weight)) return 1;
  if (divisor_ == Divisor::kSamples) return 1 / average_weight;
  return ranks_ / std::nearbyint(average_weight * ranks_);
}

}  // namespace kolo
