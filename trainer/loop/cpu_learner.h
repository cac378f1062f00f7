#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "comm/base/clock.h"
#include "trainer/catalog.h"
#include "trainer/compute/device.h"
#include "trainer/config.h"
#include "trainer/loop/buffer_means.h"
#include "trainer/loop/learner.h"
#include "trainer/loop/parameter_updater.h"
#include "trainer/loss/loss.h"
#include "trainer/models/model.h"
#include "trainer/optimizer/weight_average.h"
#include "trainer/tasks/task.h"

namespace kolo::trainer {

/// Training on the processor; see Note [Mixed precision] in trainer/precision.
class CpuLearner final : public Learner, private Stateful {
 public:
  /// Errors: KoloError(kConfig) for a precision or a feature that the processor does not offer;
  ///         UsageError if the model does not fit the samples; those of the runtime.
  CpuLearner(const Config& config, Runtime& runtime, const Task& task, const Catalog& catalog);

  std::size_t parameter_count() const override { return model_->parameters().element_count(); }
  PlanSummary plan() const override { return updater_->plan(); }
  std::vector<CompressionStats> compression_stats() const override {
    return updater_->compression_stats();
  }
  float loss_scale() const override { return updater_->loss_scale(); }
  std::optional<UpdateMemory> memory() override { return updater_->memory(); }
  std::string origin() const override { return origin_; }

  Stateful* state() override { return this; }

  void forward_backward(const Batch& batch, float row_weight) override;
  StepReport finish(float lr) override;
  void begin_evaluation() override;
  void end_evaluation() override;
  void evaluate(const Batch& batch) override;
  LossSums take_sums() override { return std::exchange(sums_, {}); }
  const ParameterSet& parameters() override { return model_->parameters(); }

 private:
  void visit_state(StateVisitor& visitor) override;
  LossSums run(const Batch& batch, bool is_training, float row_weight);

  const bool joins_;               // where this rank has no samples
  const double samples_per_step_;  // of this rank, unless they are fewer
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

}  // namespace kolo::trainer
