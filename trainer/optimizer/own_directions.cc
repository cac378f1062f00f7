#include "trainer/optimizer/own_directions.h"

#include <numeric>
#include <string>
#include <utility>

#include "trainer/kernels/kernels.h"

namespace kolo::trainer {

OwnDirections::OwnDirections(ParameterSet& parameters, const Optimizer::Adaptation& adaptation)
    : parameters_(parameters), adaptation_(adaptation), states_(parameters.size()) {}

/// Shared pieces come first, because the number of steps decides whether a tensor has moments.
void OwnDirections::visit_state(StateVisitor& visitor) {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    State& state = states_[i];
    const Parameter& parameter = parameters_[i];
    const auto name = [&](const char* what) {
      return "own_directions." + std::string(what) + "/" + parameter.name();
    };
    visitor.shared(name("steps"), state.steps);
    if (state.steps == 0) continue;
    if (state.moment.size() == 0) allocate(state, parameter.shape());
    std::uint64_t is_measured = state.is_measured ? 1 : 0;
    visitor.shared(name("is_measured"), is_measured);
    state.is_measured = is_measured != 0;
    visitor.shared(name("average_energy"), state.average_energy);
    visitor.own(name("survival"), state.survival);
    visitor.own(name("moment"), parameter.shape(), state.moment.span());
  }
}

void OwnDirections::observe(std::size_t parameter, float scale) {
  enter(states_[parameter], parameter, scale);
}

void OwnDirections::observe_average(std::size_t parameter, float scale) {
  State& state = states_[parameter];
  const double squares = double{scale} * scale * sum_of_squares(parameters_[parameter].gradient());
  const double beta2 = adaptation_.beta2;
  state.average_energy = beta2 * state.average_energy + (1.0 - beta2) * squares;
}

void OwnDirections::turn(std::size_t parameter) {
  State& state = states_[parameter];
  if (!state.is_measured) {
    state.survival = survival(state);
    state.is_measured = true;
  }
  enter(state, parameter, 1.0f);
  const double correction = bias_correction(adaptation_.beta2, state.steps + 1);
  adam_direction({.epsilon = adaptation_.epsilon,
                  .moment_scale = static_cast<float>(state.survival * correction)},
                 state.next_moment.span(), parameters_[parameter].gradient());
}

void OwnDirections::commit() {
  for (State& state : states_) {
    if (!std::exchange(state.has_next, false)) continue;
    std::swap(state.moment, state.next_moment);
    ++state.steps;
  }
}

void OwnDirections::allocate(State& state, const Shape& shape) {
  state.moment = Tensor(shape);
  state.next_moment = Tensor(shape);
}

void OwnDirections::enter(State& state, std::size_t parameter, float scale) {
  if (state.moment.size() == 0) allocate(state, parameters_[parameter].shape());
  second_moment_update({.beta2 = adaptation_.beta2, .square_scale = scale * scale},
                       parameters_[parameter].gradient(), state.moment.span(),
                       state.next_moment.span());
  state.has_next = true;
}

/// The factor by which averaging reduced squares so far. Both sums are running means over the same
/// steps, so their ratio needs no bias correction.
double OwnDirections::survival(const State& state) {
  const std::span<const float> moment = state.moment.span();
  const double own = std::accumulate(moment.begin(), moment.end(), 0.0);
  return own > 0.0 && state.average_energy > 0.0 ? state.average_energy / own : 1.0;
}

}  // namespace kolo::trainer
