#include "trainer/loop/parameter_exchange.h"

#include <utility>
#include <vector>

namespace kolo::trainer {
namespace {

BufferView view_of(std::span<float> values) {
  return {values.data(), values.size(), DType::kFloat32};
}

}  // namespace

GradientSet register_gradients(Runtime& runtime, const ParameterSet& parameters,
                               const GradientStorage& storage, GradientOptions options) {
  std::vector<GradientSpec> specs;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].rows() != nullptr) continue;
    GradientSpec& spec = specs.emplace_back();
    spec.name = parameters[i].name();
    spec.shape = parameters[i].shape();
    spec.dtype = storage.dtype;
    spec.memory = storage.memory;
  }
  return runtime.register_gradients("model", std::move(specs), std::move(options));
}

void broadcast_values(Runtime& runtime, ParameterSet& parameters) {
  std::vector<Ticket> tickets;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const BufferView values = view_of(parameters[i].value());
    tickets.push_back(runtime.broadcast_async("parameter " + parameters[i].name(), values, 0));
  }
  for (Buffer& buffer : parameters.buffers()) {
    const BufferView values = view_of(buffer.value.span());
    tickets.push_back(runtime.broadcast_async("buffer " + buffer.name, values, 0));
  }
  for (Ticket& ticket : tickets) ticket.wait();
}

}  // namespace kolo::trainer
