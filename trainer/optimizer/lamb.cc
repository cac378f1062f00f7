#include "trainer/optimizer/lamb.h"

#include <algorithm>
#include <cmath>

#include "trainer/kernels/vector.h"

namespace kolo::trainer {

OptimizerEntry Lamb::entry() {
  return {.name = "lamb",
          .help = "AdamW with steps as long as the weights, for large batches",
          .make =
              [](ParameterSet& parameters, const OptimizerOptions& options) {
                return std::make_unique<Lamb>(parameters, options);
              },
          .reads = {"--beta1", "--beta2", "--epsilon"}};
}

Lamb::Lamb(ParameterSet& parameters, const OptimizerOptions& options)
    : AdamMoments(parameters, options) {
  require_no_rows("lamb");
  std::size_t shared_out = 0, largest = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::size_t owned = parameters[i].owned().count;
    const bool is_sharded = parameters[i].is_sharded();
    begins_.push_back(is_sharded ? shared_out : 0);
    if (is_sharded) shared_out += owned;
    largest = std::max(largest, owned);
  }
  directions_ = Tensor({std::max(shared_out, largest)});
}

std::span<float> Lamb::direction_of(std::size_t index) {
  return directions_.span().subspan(begins_[index], parameters_[index].owned().count);
}

std::span<const float> Lamb::direction_of(std::size_t index) const {
  return directions_.span().subspan(begins_[index], parameters_[index].owned().count);
}

void Lamb::update(std::size_t index, float lr, float gradient_scale) {
  prepare(index, gradient_scale);
  apply(index, lr, gradient_scale, add_up(index, parameters_[index].size()));
}

void Lamb::prepare(std::size_t index, float gradient_scale) {
  const AdamWStep step = step_of(index, 0.0f, gradient_scale);  // A direction has no length.
  visit_parts(index, [&](const Part& part) {
    const auto direction = direction_of(index).subspan(part.begin, part.gradient.size());
    std::ranges::copy(part.gradient, direction.begin());
    adamw_direction(step, direction, part.of(first_moment_[index]), part.of(second_moment_[index]),
                    part.value);
  });
}

Lamb::Squares Lamb::squares_of(std::size_t index, ElementRange range) const {
  if (weight_decay(index) == 0.0f) return {};
  const Parameter& parameter = parameters_[index];
  const auto direction =
      direction_of(index).subspan(range.begin - parameter.owned().begin, range.count);
  return {.of_weights = sum_of_squares(parameter.value().subspan(range.begin, range.count)),
          .of_step = sum_of_squares(direction)};
}

void Lamb::apply(std::size_t index, float lr, float, const Squares& whole) {
  double trust = 1.0;
  if (weight_decay(index) > 0.0f) {
    const double of_weights = std::sqrt(whole.of_weights);
    const double of_direction = std::sqrt(whole.of_step);
    if (of_weights > 0.0 && of_direction > 0.0) trust = of_weights / of_direction;
  }
  Parameter& parameter = parameters_[index];
  const ElementRange owned = parameter.owned();
  add_scaled(direction_of(index), static_cast<float>(-lr * trust),
             parameter.value().subspan(owned.begin, owned.count));
}

}  // namespace kolo::trainer
