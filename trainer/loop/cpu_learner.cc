#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/base/clock.h"
#include "runtime/api/kolo.h"
#include "trainer/catalog.h"
#include "trainer/checkpoint/state_visitor.h"
#include "trainer/checkpoint/stored_weights.h"
#include "trainer/compute/device.h"
#include "trainer/config.h"
#include "trainer/errors.h"
#include "trainer/loop/learner.h"
#include "trainer/loss/loss.h"
#include "trainer/models/model.h"
#include "trainer/optimizer/weight_average.h"
#include "trainer/parameter_set.h"
#include "trainer/precision/precision.h"
#include "trainer/tasks/task.h"

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
      runtime.all_reduce(name, {values.data(), values.size(), DType::kFloat64}).wait();
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

/// Averages a model's buffers over ranks. Buffers such as running statistics differ between ranks
/// during training. Their means are evaluated and saved; training continues with the buffers of
/// each rank.
///
/// Threads: one. `runtime` and `parameters` outlive this object.
class BufferMeans final : public Stateful {
 public:
  BufferMeans(Runtime& runtime, ParameterSet& parameters)
      : runtime_(runtime), parameters_(parameters) {}

  /// Replaces the buffers by their means over all ranks, with equal bits on all ranks. Collective.
  void begin() {
    own_ = all();
    if (own_.empty()) return;
    // All buffers share one all-reduce, because they are small and many.
    std::vector<float> means = own_;
    runtime_
        .all_reduce("buffers", {means.data(), means.size(), DType::kFloat32}, ReduceOp::kAverage)
        .wait();
    set(means);
  }
  /// Restores each rank's own buffers.
  void end() { set(own_); }

  /// Saves or restores the means and this rank's buffers; a job with another number of ranks
  /// resumes with the means. Call only while `begin` is not in effect. Collective when saving.
  void visit_state(StateVisitor& visitor) override {
    std::deque<Buffer>& buffers = parameters_.buffers();
    if (!visitor.is_restoring()) begin();
    for (Buffer& buffer : buffers) {
      visitor.shared(kBuffers + buffer.name, buffer.value.shape(), buffer.value.span());
    }
    if (!visitor.is_restoring()) end();
    if (visitor.has_other_ranks()) return;
    for (Buffer& buffer : buffers) {
      visitor.own(kBuffers + buffer.name, buffer.value.shape(), buffer.value.span());
    }
  }

 private:
  std::vector<float> all() const {
    std::vector<float> values;
    for (const Buffer& buffer : parameters_.buffers()) {
      values.insert(values.end(), buffer.value.span().begin(), buffer.value.span().end());
    }
    return values;
  }
  void set(std::span<const float> values) {
    for (Buffer& buffer : parameters_.buffers()) {
      buffer.value.assign(values.first(buffer.value.size()));
      values = values.subspan(buffer.value.size());
    }
  }

  Runtime& runtime_;
  ParameterSet& parameters_;
  std::vector<float> own_;  // this rank's buffers, between `begin` and `end`
};

class CpuLearner final : public Learner, private Stateful {
 public:
  CpuLearner(const Config& config, Runtime& runtime, const Task& task, const Catalog& catalog)
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

  std::size_t parameter_count() const override { return model_->parameters().element_count(); }
  PlanSummary plan() const override { return updater_->plan(); }
  std::vector<CompressionStats> compression_stats() const override {
    return updater_->compression_stats();
  }
  float loss_scale() const override { return updater_->loss_scale(); }
  std::optional<UpdateMemory> memory() override { return updater_->memory(); }
  std::string origin() const override { return origin_; }

  Stateful* state() override { return this; }

  void forward_backward(const Batch& batch, float row_weight) override {
    if (joins_) {
      updater_->take_part({.weight = static_cast<double>(batch.rank_samples) / samples_per_step_,
                           .leaves_out_ranks = batch.leaves_out_ranks});
      if (batch.rank_samples == 0) return;
    }
    sums_ += run(batch, true, row_weight * updater_->loss_scale());
    model_->backward(loss_->gradient());
  }
  void await_averages() override { updater_->await_averages(); }
  UpdateVerdict clip() override { return updater_->clip(); }
  StepReport update(float lr, const UpdateVerdict& verdict) override {
    const StepReport report = updater_->update(lr, verdict);
    if (average_ && !report.is_skipped) average_->update();
    return report;
  }
  void begin_evaluation() override {
    if (average_) average_->swap();
    buffer_means_.begin();
  }
  void end_evaluation() override {
    buffer_means_.end();
    if (average_) average_->swap();
  }
  void evaluate(const Batch& batch) override { sums_ += run(batch, false, 1.0f); }
  LossSums take_sums() override { return std::exchange(sums_, {}); }
  const ParameterSet& parameters() override { return model_->parameters(); }

 private:
  void visit_state(StateVisitor& visitor) override {
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
  LossSums run(const Batch& batch, bool is_training, float row_weight) {
    const std::span<const float> output =
        model_->forward(batch.inputs, {.is_training = is_training,
                                       .samples = batch.samples,
                                       .epoch = batch.epoch,
                                       .first_position = batch.first_position});
    return loss_->evaluate(output, batch.targets, row_weight);
  }

  const bool joins_;               // whether ranks without samples join
  const double samples_per_step_;  // samples of this rank in a full step
  Device device_;
  std::string origin_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Loss> loss_;
  SteadyClock clock_;
  std::unique_ptr<ParameterUpdater> updater_;
  std::optional<WeightAverage> average_;
  BufferMeans buffer_means_;
  LossSums sums_;
};

}  // namespace

std::unique_ptr<Learner> make_cpu_learner(const Config& config, Runtime& runtime, const Task& task,
                                          const Catalog& catalog) {
  return std::make_unique<CpuLearner>(config, runtime, task, catalog);
}

}  // namespace kolo::trainer
