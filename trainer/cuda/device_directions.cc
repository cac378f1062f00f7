#include "trainer/cuda/device_directions.h"

#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "comm/device/cuda_device.h"
#include "trainer/cuda/kernels/update.h"

namespace kolo::trainer::cuda {
namespace {

constexpr std::size_t kMeasures = 2;  // of a parameter

}  // namespace

DeviceDirections::DeviceDirections(DeviceParameters& parameters,
                                   const Optimizer::Adaptation& adaptation)
    : parameters_(parameters), adaptation_(adaptation), states_(parameters.size()) {
  const CudaDeviceGuard guard(parameters.device_index());
  measures_ = parameters.device().allocate(kMeasures * parameters.size() * sizeof(double),
                                           MemoryKind::kDevice);
  clear(parameters.stream(), measures_);
}

double* DeviceDirections::energy(std::size_t parameter) const {
  return reinterpret_cast<double*>(measures_.data()) + kMeasures * parameter;
}
double* DeviceDirections::survival(std::size_t parameter) const { return energy(parameter) + 1; }

/// The order and the names are those of OwnDirections.
void DeviceDirections::visit_state(StateVisitor& visitor) {
  const CudaDeviceGuard guard(parameters_.device_index());
  std::vector<double> measures(kMeasures * states_.size());
  const std::size_t floats = measures_.bytes() / sizeof(float);
  std::memcpy(measures.data(), parameters_.fetch(floats_of(measures_), floats), measures_.bytes());
  for (std::size_t i = 0; i < states_.size(); ++i) {
    State& state = states_[i];
    const Parameter& parameter = parameters_.host()[i];
    const auto name = [&](const char* what) {
      return "own_directions." + std::string(what) + "/" + parameter.name();
    };
    visitor.shared(name("steps"), state.steps);
    if (state.steps == 0) continue;
    if (!state.moment) allocate(i);
    std::uint64_t is_measured = state.is_measured ? 1 : 0;
    visitor.shared(name("is_measured"), is_measured);
    state.is_measured = is_measured != 0;
    visitor.shared(name("average_energy"), measures[kMeasures * i]);
    double& survival = measures[kMeasures * i + 1];
    if (!state.is_measured) survival = 1.0;
    visitor.own(name("survival"), survival);
    float* const moment = floats_of(state.moment);
    float* const values = parameters_.fetch(moment, parameter.size());
    visitor.own(name("moment"), parameter.shape(), std::span(values, parameter.size()));
    if (visitor.is_restoring()) parameters_.send(moment, parameter.size());
  }
  if (!visitor.is_restoring()) return;
  std::memcpy(parameters_.fetch(floats_of(measures_), floats), measures.data(), measures_.bytes());
  parameters_.send(floats_of(measures_), floats);
}

void DeviceDirections::observe(std::size_t parameter) { enter(parameter, nullptr); }

void DeviceDirections::observe_average(CudaOptimizer& optimizer, std::size_t parameter) {
  optimizer.measure(parameter, adaptation_.beta2, energy(parameter));
}

void DeviceDirections::turn(std::size_t parameter) {
  const CudaDeviceGuard guard(parameters_.device_index());
  State& state = states_[parameter];
  if (!std::exchange(state.is_measured, true)) {
    if (!state.moment) allocate(parameter);
    measure_survival({parameters_.stream().native()}, floats_of(state.moment),
                     parameters_[parameter].size, energy(parameter), survival(parameter));
  }
  enter(parameter, survival(parameter));
}

void DeviceDirections::commit() {
  for (State& state : states_) {
    if (!std::exchange(state.has_next, false)) continue;
    std::swap(state.moment, state.next_moment);
    ++state.steps;
  }
}

void DeviceDirections::allocate(std::size_t parameter) {
  State& state = states_[parameter];
  const std::size_t count = parameters_[parameter].size;
  for (DeviceMemory* memory : {&state.moment, &state.next_moment}) {
    *memory = parameters_.device().allocate(count * sizeof(float), MemoryKind::kDevice);
  }
  clear(parameters_.stream(), state.moment);
}

void DeviceDirections::enter(std::size_t parameter, const double* survival) {
  const CudaDeviceGuard guard(parameters_.device_index());
  State& state = states_[parameter];
  if (!state.moment) allocate(parameter);
  DeviceParameter& of = parameters_[parameter];
  enter_moment({parameters_.stream().native()},
               {.gradient = of.gradient,
                .moment = floats_of(state.moment),
                .next = floats_of(state.next_moment),
                .count = of.size},
               {.beta2 = adaptation_.beta2,
                .epsilon = adaptation_.epsilon,
                .correction = bias_correction(adaptation_.beta2, state.steps + 1),
                .survival = survival});
  state.has_next = true;
}

}  // namespace kolo::trainer::cuda
