#include <algorithm>
#include <cstdint>
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
#include "trainer/checkpoint/memory_state.h"
#include "trainer/checkpoint/state_visitor.h"
#include "trainer/checkpoint/stored_weights.h"
#include "trainer/compute/device.h"
#include "trainer/config.h"
#include "trainer/errors.h"
#include "trainer/loop/learner.h"
#include "trainer/loop/rank_means.h"
#include "trainer/loss/loss.h"
#include "trainer/mesh/mesh.h"
#include "trainer/mesh/pipeline.h"
#include "trainer/mesh/rank_models.h"
#include "trainer/mesh/whole_model.h"
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
  if (config.attention != "auto") {
    throw_config_error("--attention " + config.attention + ": needs --device cuda");
  }
  return config;
}

RankModels make_models(const Config& config, Runtime& runtime, const Task& task,
                       const Catalog& catalog, Mesh* mesh, Device& device, std::string& origin) {
  ModelSetting setting = model_setting(config, task);
  if (mesh != nullptr) {
    setting.tensor = mesh->tensor_ranks();
    setting.stage = mesh->stage();
  }
  if (config.sync_batch_norm) {
    setting.sum_over_ranks = [&runtime](std::string_view name, std::span<double> values) {
      runtime.all_reduce(name, {values.data(), values.size(), DType::kFloat64}).wait();
    };
  }
  const ModelEntry& entry = catalog.models.at(config.model);
  RankModels made = make_rank_models(entry, setting, task, device);
  ParameterSet& parameters = made.models[0]->parameters();
  if (mesh != nullptr && !config.weights.empty()) {
    const RankModels all = make_models(config, runtime, task, catalog, nullptr, device, origin);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Parameter& whole = *all.models[0]->parameters().find(parameters[i].name());
      parameters[i].part().take(whole.shape(), whole.value(), parameters[i].value());
    }
  } else if (config.weights_part == "shared") {
    origin = describe(config.weights, import_shared_weights(config.weights, parameters));
  } else if (!config.weights.empty()) {
    import_weights(config.weights, parameters, entry.layouts);
  }
  return made;
}

class CpuLearner final : public Learner, private Stateful {
 public:
  CpuLearner(const Config& config, Runtime& runtime, const Task& task, const Catalog& catalog)
      : config_(require_offered(config)),
        runtime_(runtime),
        task_(task),
        catalog_(catalog),
        joins_(config.uneven == "join"),
        samples_per_step_(static_cast<double>(config.batch * config.accumulation)),
        device_(offered_precision(config)) {
    const MeshShape shape = mesh_of(config.mesh, runtime);
    require_splittable(config, runtime.options(), shape, catalog);
    if (shape.splits_model()) mesh_.emplace(runtime, shape);
    build();
  }

  std::size_t parameter_count() const override {
    return (whole_ ? *whole_ : made_.models[0]->parameters()).element_count();
  }
  PlanSummary plan() const override { return updater_->plan(); }
  std::vector<CompressionStats> compression_stats() const override {
    return updater_->compression_stats();
  }
  float loss_scale() const override { return updater_->loss_scale(); }
  std::optional<UpdateMemory> memory() override {
    UpdateMemory memory = updater_->memory();
    memory.activation_bytes = made_.activation_bytes;
    return memory;
  }
  std::string origin() const override { return origin_; }

  Stateful& state() override { return *this; }

  void take_batch(std::size_t batch) override {
    MemoryState state;
    visit_state(state);
    state.restore();
    config_.batch = batch;
    config_.weights.clear();  // the state has the weights
    config_.weights_part = "all";
    build();
    visit_state(state);
  }

  void forward_backward(const Batch& batch, float row_weight) override {
    if (joins_) {
      updater_->take_part({.weight = static_cast<double>(batch.rank_samples) / samples_per_step_,
                           .leaves_out_ranks = batch.leaves_out_ranks});
      if (batch.rank_samples == 0) return;
    }
    const float weight = row_weight * updater_->loss_scale();
    if (pipeline_) return count(pipeline_->train(batch, weight));
    count(run(batch, true, weight));
    model().backward(loss().gradient());
  }
  void await_averages() override { updater_->await_averages(); }
  UpdateVerdict clip() override { return updater_->clip(); }
  StepReport update(float lr, const UpdateVerdict& verdict) override {
    StepReport report = updater_->update(lr, verdict);
    if (pipeline_) report.waited = pipeline_->take_waited();
    if (average_ && !report.is_skipped) average_->update();
    if (pipeline_) pipeline_->share_table();
    if (mesh_) report.exposed += mesh_->take_exposed() + report.waited;
    return report;
  }
  std::chrono::nanoseconds meet() override { return updater_->meet(); }
  std::uint64_t network_bytes_sent() const override {
    return updater_->network_bytes_sent() + (mesh_ ? mesh_->network_bytes_sent() : 0);
  }
  void begin_evaluation() override {
    swap_average();
    rank_means_->begin(updater_->ranks_differ());
  }
  void end_evaluation() override {
    rank_means_->end();
    swap_average();
    if (mesh_) mesh_->take_exposed();
    if (pipeline_) pipeline_->take_waited();
  }
  void evaluate(const Batch& batch) override {
    count(pipeline_ ? pipeline_->evaluate(batch) : run(batch, false, 1.0f));
  }
  LossSums take_sums() override { return std::exchange(sums_, {}); }
  const ParameterSet& parameters() override { return model().parameters(); }
  Mesh* mesh() override { return mesh_ ? &*mesh_ : nullptr; }
  const ParameterSet& whole_parameters() override {
    if (whole_) gather_model(*mesh_, parameters(), *whole_);
    return whole_ && runtime_.rank() == 0 ? *whole_ : parameters();
  }

 private:
  Model& model() { return *made_.models[0]; }
  Loss& loss() { return *made_.loss; }
  /// Makes the model, its loss and its updater, which replace the former ones. Collective.
  void build() {
    whole_.reset();
    pipeline_.reset();
    average_.reset();
    rank_means_.reset();
    updater_.reset();
    made_ = make_models(config_, runtime_, task_, catalog_, mesh(), device_, origin_);
    ParameterSet& parameters = model().parameters();
    updater_ = make_updater(config_, catalog_.optimizers.at(config_.optimizer), runtime_, task_,
                            parameters, clock_, mesh());
    rank_means_.emplace(runtime_, parameters);
    parameters.accumulate(config_.accumulation);
    if (config_.weight_average > 0.0f) average_.emplace(parameters, config_.weight_average);
    if (!mesh_) return;
    if (mesh_->stage().count > 1) {
      pipeline_.emplace(*mesh_, made_.models, loss(), config_.accumulation);
      pipeline_->share_table();
    }
    ModelSetting whole = model_setting(config_, task_);
    whole.parameters = &whole_.emplace(std::nullopt);
    catalog_.models.at(config_.model).make(whole, device_);
  }
  void visit_state(StateVisitor& given) override {
    std::optional<WholeVisitor> whole;
    if (mesh_) whole.emplace(given, *mesh_, parameters());
    StateVisitor& visitor = whole ? *whole : given;
    rank_means_->visit_state(visitor, updater_->ranks_differ());
    if (average_) average_->visit_state(visitor);
    visitor.part_of_sum("loss", sums_.loss);
    visitor.part_of_sum("score", sums_.score);
    visitor.part_of_sum("rows", sums_.rows);
    updater_->visit_state(visitor);
    if (visitor.is_restoring() && pipeline_) pipeline_->share_table();
  }
  /// Adds `sums` to those of this rank, unless another rank of the mesh counts the same samples.
  void count(const LossSums& sums) {
    if (!mesh_ || mesh_->counts_loss()) sums_ += sums;
  }
  /// Exchanges the weights and their running mean, if there is one.
  void swap_average() {
    if (!average_) return;
    average_->swap();
    if (pipeline_) pipeline_->share_table();
  }
  LossSums run(const Batch& batch, bool is_training, float row_weight) {
    const std::span<const float> output =
        model().forward(batch.inputs, {.is_training = is_training,
                                       .samples = batch.samples,
                                       .epoch = batch.epoch,
                                       .first_position = batch.first_position});
    return loss().evaluate(output, batch.targets, row_weight);
  }

  Config config_;
  Runtime& runtime_;
  const Task& task_;
  const Catalog& catalog_;
  const bool joins_;               // whether ranks without samples join
  const double samples_per_step_;  // samples of this rank in a full step
  std::optional<Mesh> mesh_;       // set if the model is split
  Device device_;
  std::string origin_;
  RankModels made_;
  SteadyClock clock_;
  std::unique_ptr<ParameterUpdater> updater_;
  std::optional<WeightAverage> average_;
  std::optional<RankMeans> rank_means_;
  std::optional<Pipeline> pipeline_;   // set if the model has several stages
  std::optional<ParameterSet> whole_;  // of the whole model, set if the model is split
  LossSums sums_;
};

}  // namespace

std::unique_ptr<Learner> make_cpu_learner(const Config& config, Runtime& runtime, const Task& task,
                                          const Catalog& catalog) {
  return std::make_unique<CpuLearner>(config, runtime, task, catalog);
}

}  // namespace kolo::trainer
