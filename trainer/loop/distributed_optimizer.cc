#include "trainer/loop/distributed_optimizer.h"

#include <utility>
#include <vector>

#include "trainer/optimizer/gradient_norm.h"

namespace kolo::trainer {
namespace {

GradientSet register_all(Runtime& runtime, const ParameterSet& parameters) {
  std::vector<GradientSpec> specs;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    GradientSpec& spec = specs.emplace_back();
    spec.name = parameters[i].name();
    spec.shape = parameters[i].shape();
  }
  GradientOptions options;
  options.op = ReduceOp::kAverage;
  return runtime.register_gradients("model", std::move(specs), options);
}

BufferView view_of(std::span<float> values) {
  return {.data = values.data(), .count = values.size(), .dtype = DType::kFloat32};
}

}  // namespace

DistributedOptimizer::DistributedOptimizer(Runtime& runtime, ParameterSet& parameters,
                                           std::unique_ptr<Optimizer> optimizer,
                                           const Options& options)
    : parameters_(parameters),
      optimizer_(std::move(optimizer)),
      options_(options),
      gradients_(register_all(runtime, parameters)) {
  std::vector<Ticket> tickets;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const BufferView gradient = gradients_.view(i);
    parameters[i].bind_gradient({static_cast<float*>(gradient.data), gradient.count});
    tickets.push_back(runtime.broadcast_async("parameter " + parameters[i].name(),
                                              view_of(parameters[i].value()), 0));
  }
  for (Ticket& ticket : tickets) ticket.wait();
  parameters.on_gradient_ready([this](std::size_t index) { gradients_.ready(index); });
}

DistributedOptimizer::~DistributedOptimizer() {
  parameters_.on_gradient_ready({});
  for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].unbind_gradient();
}

DistributedOptimizer::Report DistributedOptimizer::step(float lr) {
  const auto begin = std::chrono::steady_clock::now();
  gradients_.wait();
  const auto exposed = std::chrono::steady_clock::now() - begin;
  const double norm = gradient_norm(parameters_);
  optimizer_->step(lr, clip_factor(norm, options_.clip_norm));
  return {.gradient_norm = norm, .exposed = exposed};
}

}  // namespace kolo::trainer
