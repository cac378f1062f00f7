#include "trainer/loop/parameter_exchange.h"

#include <utility>
#include <vector>

namespace kolo::trainer {

GradientSet register_gradients(Runtime& runtime, const ParameterSet& parameters, MemoryKind memory,
                               std::string compression) {
  std::vector<GradientSpec> specs;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    GradientSpec& spec = specs.emplace_back();
    spec.name = parameters[i].name();
    spec.shape = parameters[i].shape();
    spec.memory = memory;
  }
  GradientOptions options;
  options.op = ReduceOp::kAverage;
  options.compression = std::move(compression);
  return runtime.register_gradients("model", std::move(specs), options);
}

void broadcast_values(Runtime& runtime, ParameterSet& parameters) {
  std::vector<Ticket> tickets;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::span<float> values = parameters[i].value();
    const BufferView view{.data = values.data(), .count = values.size(), .dtype = DType::kFloat32};
    tickets.push_back(runtime.broadcast_async("parameter " + parameters[i].name(), view, 0));
  }
  for (Ticket& ticket : tickets) ticket.wait();
}

}  // namespace kolo::trainer
