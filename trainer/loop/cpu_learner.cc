#include "trainer/loop/cpu_learner.h"

#include <fmt/format.h>

#include "trainer/config_error.h"
#include "trainer/loop/compression_rules.h"
#include "trainer/precision/precision.h"

namespace kolo::trainer {
namespace {

const Config& require_offered(const Config& config) {
  if (parse_precision(config.precision) != DType::kFloat32) {
    throw_config_error(
        fmt::format("--precision {}: on cpu the trainer computes in float32 only; --device cuda "
                    "offers all precisions, and --wire {} sends 16 bits from any device",
                    config.precision, config.precision));
  }
  if (config.cuda_graph) throw_config_error("--cuda-graph on: needs --device cuda");
  return config;
}

DistributedOptimizer distribute(const Config& config, Runtime& runtime, const Task& task,
                                ParameterSet& parameters, const Clock& clock) {
  auto optimizer = make_optimizer(config.optimizer, parameters, config.optimizer_options);
  DistributedOptimizer::Options options{.gate = update_options(config),
                                        .compression = runtime.options().compression};
  if (optimizer->adaptation()) {
    options.compression = adaptive_rules(
        options.compression,
        {.warmup_steps = config.warmup_steps,
         .total_steps = total_steps(config, task.train->size(), runtime.world_size())});
  }
  return {runtime, parameters, std::move(optimizer), options, clock};
}

}  // namespace

CpuLearner::CpuLearner(const Config& config, Runtime& runtime, const Task& task)
    : model_(make_model(task.model, device_)),
      loss_(config.batch * task.train->target_bytes(), task.classes),
      optimizer_(distribute(require_offered(config), runtime, task, model_->parameters(), clock_)) {
}

void CpuLearner::forward_backward(const Batch& batch, float row_weight) {
  sums_ += loss_.evaluate(model_->forward(batch.inputs), batch.targets,
                          row_weight * optimizer_.loss_scale());
  model_->backward(loss_.gradient());
}

StepReport CpuLearner::finish(float lr) {
  const DistributedOptimizer::Report report = optimizer_.step(lr);
  return {.gradient_norm = report.gradient_norm,
          .exposed = report.exposed,
          .is_skipped = report.is_skipped};
}

void CpuLearner::evaluate(const Batch& batch) {
  sums_ += loss_.evaluate(model_->forward(batch.inputs), batch.targets, 1.0f);
}

}  // namespace kolo::trainer
