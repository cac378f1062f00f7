#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/base/clock.h"
#include "comm/base/dtype.h"
#include "runtime/api/kolo.h"
#include "trainer/checkpoint/state_visitor.h"
#include "trainer/loop/learner.h"
#include "trainer/loop/parameter_exchange.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/optimizer/own_directions.h"
#include "trainer/optimizer/update_gate.h"
#include "trainer/parameter_set.h"
#include "trainer/shards/shard_plan.h"

namespace kolo::trainer {

/// Connects a model's parameters on the processor to the runtime. Gradients live in the runtime's
/// arena; each is marked ready as soon as the backward pass has written it, and a step waits for
/// the averages.
///
/// Some averages are finished directions, which the optimizer only follows: averages of gradients
/// with momentum correction, and sparse averages with an adaptive optimizer. For the latter, each
/// rank marks directions instead of gradients (`OwnDirections`) from the first step after a dense
/// warm-up, and these directions are not clipped.
///
/// Gradients are float32 or bfloat16. bfloat16 gradients are rounded once as they are written,
/// summed in float32, and rounded once more; norms and updates are computed in float32.
///
/// Sparse gradients of tables (`Parameter::rows`) are averaged by row, in float32, and not
/// compressed.
class DistributedOptimizer final : public ParameterUpdater {
 public:
  struct Options {
    UpdateGate::Options gate = {};
    std::string compression = {};  ///< Rules by parameter; empty: the runtime's.
    /// Dtype of the gradients in the arena, not of rows. kBFloat16 excludes sparse compression.
    DType gradient_dtype = DType::kFloat32;
    /// Averages are weighted by samples (`take_part`), and ranks without samples join.
    bool counts_samples = false;
  };

  /// Registers the gradients and broadcasts the parameters of rank 0. Errors: those of the runtime;
  /// KoloError(kConfig) for a momentum correction that differs from the optimizer's momentum.
  DistributedOptimizer(Runtime& runtime, ParameterSet& parameters,
                       std::unique_ptr<Optimizer> optimizer, const Options& options,
                       const Clock& clock);
  ~DistributedOptimizer() override;
  DistributedOptimizer(const DistributedOptimizer&) = delete;
  DistributedOptimizer& operator=(const DistributedOptimizer&) = delete;

  float loss_scale() const override { return gate_.loss_scale(); }
  void take_part(const ParticipationWeight& weight) override;
  void await_averages() override;
  UpdateVerdict clip() override;
  StepReport update(float lr, const UpdateVerdict& verdict) override;

  /// Visits everything except the parameters. Call between steps; restoring is collective.
  void visit_state(StateVisitor& visitor) override;

  PlanSummary plan() const override { return gradients_.plan(); }
  std::vector<CompressionStats> compression_stats() const override {
    return gradients_.compression_stats();
  }
  UpdateMemory memory() override;

 private:
  void update_all(float lr, float gradient_scale);
  /// Determines how each gradient is treated in the next step; this may change after any step.
  void begin_step();
  /// Called before a gradient is marked ready: turns sparse gradients into directions, and observes
  /// those that are still dense.
  void prepare(std::size_t index);
  void update(std::size_t index, float lr, float gradient_scale);
  /// Errors: KoloError(kConfig) unless the corrected momentum is the optimizer's.
  void require_momentum(std::size_t index) const;
  /// Scales the sparse gradients, whose residuals carry no loss scale.
  void scale_sparse(std::size_t index, float factor);
  /// Calls the runtime and counts the time as exposed communication.
  template <typename Call>
  void communicate(Call&& call) {
    const TimePoint begin = clock_.now();
    call();
    exposed_ += clock_.now() - begin;
  }

  Runtime& runtime_;
  ParameterSet& parameters_;
  const ShardPlan shares_;  // divides the work of taking norms among ranks
  std::unique_ptr<Optimizer> optimizer_;
  UpdateGate gate_;
  const Clock& clock_;
  ParticipationWeight participation_;
  float unscale_ = 1.0f;                   // 1 / loss scale of this step; `clip` may change the
                                           // loss scale
  Duration exposed_{0};                    // since the last step
  const std::vector<std::size_t> places_;  // index in `gradients_` by parameter, except rows
  GradientSet gradients_;
  RowExchange rows_;
  std::optional<OwnDirections> directions_;  // of an adaptive optimizer with sparse gradients
  // In this step, by parameter; false for rows.
  std::vector<bool> is_sparse_, corrects_momentum_, is_observed_, becomes_direction_;
};

}  // namespace kolo::trainer
