#include "trainer/cuda/learner/cuda_learner.h"

#include <algorithm>
#include <string>

#include "comm/base/check.h"
#include "trainer/cuda/learner/model_table.h"
#include "trainer/divergence.h"
#include "trainer/loop/parameter_exchange.h"
#include "trainer/precision/precision.h"
#include "trainer/tasks/make_task.h"

namespace kolo::trainer::cuda {
namespace {

kolo::Device& device_of(const Runtime& runtime) {
  check(runtime.device() != nullptr, "training on a device needs a runtime that has one");
  return *runtime.device();
}

/// Pixels as they are, tokens and classes as bytes: models with larger ones are refused.
std::span<const std::uint8_t> as_bytes(const TensorView& tensor,
                                       std::vector<std::uint8_t>& memory) {
  if (tensor.dtype() == DType::kUInt8) return tensor.as<std::uint8_t>();
  const std::span<const std::int32_t> values = tensor.as<std::int32_t>();
  memory.resize(values.size());
  std::ranges::transform(values, memory.begin(),
                         [](std::int32_t value) { return static_cast<std::uint8_t>(value); });
  return memory;
}

CudaModelOptions model_options(const Config& config) {
  CudaModelOptions options;
  options.dtype = parse_precision(config.precision);
  options.launch = config.cuda_graph ? LaunchMode::kGraph : LaunchMode::kEager;
  return options;
}

/// Gradients of `model` in the runtime's memory on the device.
GradientSet place_gradients(Runtime& runtime, CudaModel& model) {
  GradientSet gradients =
      register_gradients(runtime, model.parameters(), {.memory = MemoryKind::kDevice},
                         {.compression = runtime.options().compression});
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    model.bind_gradient(i, static_cast<float*>(gradients.view(i).data));
  }
  return gradients;
}

}  // namespace

CudaLearner::CudaLearner(const Config& config, Runtime& runtime, const Task& task)
    : model_(make_model(config.model, device_of(runtime), model_setting(config, task),
                        model_options(config))),
      gradients_(place_gradients(runtime, *model_)),
      optimizer_(*model_, config.optimizer, config.optimizer_options),
      gate_(update_options(config)),
      standstill_(device_of(runtime), model_->stream()) {
  broadcast_values(runtime, model_->parameters());
  model_->upload_parameters();
  model_->on_gradient_ready(
      [this](std::size_t index) { gradients_.ready(index, model_->stream()); });
}

void CudaLearner::forward_backward(const Batch& batch, float row_weight) {
  const Bytes bytes = bytes_of(batch);
  model_->forward_backward(bytes.inputs, bytes.targets,
                           {.row_weight = row_weight, .loss_scale = gate_.loss_scale()});
}

void CudaLearner::evaluate(const Batch& batch) {
  const Bytes bytes = bytes_of(batch);
  model_->evaluate(bytes.inputs, bytes.targets);
}

CudaLearner::Bytes CudaLearner::bytes_of(const Batch& batch) {
  return {.inputs = as_bytes(batch.inputs[0], inputs_),
          .targets = as_bytes(batch.targets[0], targets_)};
}

StepReport CudaLearner::finish(float lr) {
  standstill_.start();
  gradients_.wait(model_->stream());
  standstill_.stop();
  optimizer_.step(
      {.lr = lr, .gradient_scale = 1.0f / gate_.loss_scale(), .clip_norm = gate_.clip_norm()});
  const UpdateReport report = optimizer_.report();
  if (gate_.record(report.is_skipped)) throw_diverged("gradients are", parameters());
  return {.gradient_norm = report.gradient_norm,
          .exposed = standstill_.elapsed(),
          .is_skipped = report.is_skipped};
}

const ParameterSet& CudaLearner::parameters() {
  model_->download_parameters();
  return model_->parameters();
}

}  // namespace kolo::trainer::cuda
