#include "trainer/cuda/learner/cuda_learner.h"

#include <string>
#include <variant>

#include "comm/base/check.h"
#include "trainer/divergence.h"
#include "trainer/loop/parameter_exchange.h"
#include "trainer/precision/precision.h"

namespace kolo::trainer::cuda {
namespace {

kolo::Device& device_of(const Runtime& runtime) {
  check(runtime.device() != nullptr, "training on a device needs a runtime that has one");
  return *runtime.device();
}

std::unique_ptr<CudaModel> make_model(kolo::Device& device, const ModelSpec& spec,
                                      const CudaModelOptions& options) {
  if (const auto* gpt = std::get_if<Gpt::Options>(&spec.options)) {
    return make_gpt(device, *gpt, options);
  }
  const auto& image = std::get<ImageModelOptions>(spec.options);
  if (spec.name == "lenet") return make_lenet(device, image, options);
  check(spec.name == "mlp", "there is no image model " + spec.name);
  return make_mlp(device, image, options);
}

CudaModelOptions model_options(const Config& config) {
  CudaModelOptions options;
  options.dtype = parse_precision(config.precision);
  options.launch = config.cuda_graph ? LaunchMode::kGraph : LaunchMode::kEager;
  return options;
}

/// Gradients of `model` in the runtime's memory on the device.
GradientSet place_gradients(Runtime& runtime, CudaModel& model) {
  GradientSet gradients = register_gradients(runtime, model.parameters(), MemoryKind::kDevice,
                                             runtime.options().compression);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    model.bind_gradient(i, static_cast<float*>(gradients.view(i).data));
  }
  return gradients;
}

}  // namespace

CudaLearner::CudaLearner(const Config& config, Runtime& runtime, const Task& task)
    : model_(make_model(device_of(runtime), task.model, model_options(config))),
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
  model_->forward_backward(batch.inputs, batch.targets,
                           {.row_weight = row_weight, .loss_scale = gate_.loss_scale()});
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
