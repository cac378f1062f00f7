#include "trainer/loop/cpu_learner.h"

#include <fmt/format.h>

#include "trainer/checkpoint/import.h"
#include "trainer/checkpoint/stored_weights.h"
#include "trainer/compute/precisions.h"
#include "trainer/config_error.h"
#include "trainer/loop/make_updater.h"
#include "trainer/precision/precision.h"
#include "trainer/tasks/make_task.h"

namespace kolo::trainer {
namespace {

DType offered_precision(const Config& config) {
  const DType precision = parse_precision(config.precision);
  if (!can_compute(precision)) {
    throw_config_error(fmt::format(
        "--precision {}: oneDNN has no such products for this processor; they need AVX-512. "
        "--wire {} sends 16 bits from any",
        config.precision, config.precision));
  }
  return precision;
}

const Config& require_offered(const Config& config) {
  if (config.cuda_graph) throw_config_error("--cuda-graph on: needs --device cuda");
  return config;
}

std::unique_ptr<Model> make_model(const Config& config, Runtime& runtime, const Task& task,
                                  const Catalog& catalog, Device& device, std::string& origin) {
  ModelSetting setting = model_setting(config, task);
  if (config.sync_batch_norm) {
    setting.sum_over_ranks = [&runtime](std::string_view name, std::span<double> values) {
      runtime.all_reduce(name, {values.data(), values.size(), DType::kFloat64});
    };
  }
  const ModelEntry& entry = catalog.models.at(config.model);
  auto model = entry.make(setting, device);
  if (config.weights_part == "shared") {
    origin = describe(config.weights, import_shared_weights(config.weights, model->parameters()));
  } else if (!config.weights.empty()) {
    import_weights(config.weights, model->parameters(), entry.layouts);
  }
  return model;
}

}  // namespace

CpuLearner::CpuLearner(const Config& config, Runtime& runtime, const Task& task,
                       const Catalog& catalog)
    : joins_(config.uneven == "join"),
      samples_per_step_(static_cast<double>(config.batch * config.accumulation)),
      device_(offered_precision(config)),
      model_(make_model(config, runtime, task, catalog, device_, origin_)),
      loss_(task.make_loss(config.batch)),
      updater_(make_updater(require_offered(config), catalog.optimizers.at(config.optimizer),
                            runtime, task, model_->parameters(), clock_)),
      buffer_means_(runtime, model_->parameters()) {
  model_->parameters().accumulate(config.accumulation);
  if (config.weight_average > 0.0f) average_.emplace(model_->parameters(), config.weight_average);
}

LossSums CpuLearner::run(const Batch& batch, bool is_training, float row_weight) {
  const std::span<const float> output =
      model_->forward(batch.inputs, {.is_training = is_training,
                                     .samples = batch.samples,
                                     .epoch = batch.epoch,
                                     .first_position = batch.first_position});
  return loss_->evaluate(output, batch.targets, row_weight);
}

void CpuLearner::forward_backward(const Batch& batch, float row_weight) {
  if (joins_) {
    updater_->take_part({.weight = static_cast<double>(batch.rank_samples) / samples_per_step_,
                         .leaves_out_ranks = batch.leaves_out_ranks});
    if (batch.rank_samples == 0) return;
  }
  sums_ += run(batch, true, row_weight * updater_->loss_scale());
  model_->backward(loss_->gradient());
}

StepReport CpuLearner::finish(float lr) {
  const ParameterUpdater::Report report = updater_->step(lr);
  if (average_ && !report.is_skipped) average_->update();
  return {.gradient_norm = report.gradient_norm,
          .exposed = report.exposed,
          .is_skipped = report.is_skipped};
}

void CpuLearner::visit_state(StateVisitor& visitor) {
  ParameterSet& parameters = model_->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    visitor.shared(kWeights + parameters[i].name(), parameters[i].shape(), parameters[i].value());
  }
  if (average_) average_->visit_state(visitor);
  buffer_means_.visit_state(visitor);
  visitor.part_of_sum("loss", sums_.loss);
  visitor.part_of_sum("score", sums_.score);
  visitor.part_of_sum("rows", sums_.rows);
  updater_->visit_state(visitor);
}

void CpuLearner::begin_evaluation() {
  if (average_) average_->swap();
  buffer_means_.begin();
}

void CpuLearner::end_evaluation() {
  buffer_means_.end();
  if (average_) average_->swap();
}

void CpuLearner::evaluate(const Batch& batch) { sums_ += run(batch, false, 1.0f); }

}  // namespace kolo::trainer
