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

/// Joins a model's parameters on the processor to the runtime. Gradients live in the runtime's
/// arena; each is marked as soon as the backward pass has written it, and a step waits for the
/// averages. Where these are finished directions, the optimizer follows them: averages of gradients
/// with momentum correction, and sparse averages with an adaptive optimizer, for which each rank
/// marks directions in place of gradients (`OwnDirections`) from the first step after a dense
/// warm-up. Directions of the second kind are not clipped.
///
/// Gradients are float32 or bfloat16. Those in bfloat16 are rounded once as they are written,
/// summed in float32, and rounded once more; norms and updates compute in float32.
///
/// Gradients that are rows of tables (`Parameter::rows`) are averaged by row, in float32, and not
/// compressed.
class DistributedOptimizer final : public ParameterUpdater {
 public:
  struct Options {
    UpdateGate::Options gate = {};
    std::string compression = {};  ///< Rules by parameter; empty: the runtime's.
    /// Of the gradients in the arena; not of rows. With kBFloat16 nothing is sent sparsely.
    DType gradient_dtype = DType::kFloat32;
    /// Averages are over samples (`take_part`), and ranks without any join.
    bool counts_samples = false;
  };

  /// Registers the gradients and gives all ranks the parameters of rank 0. Errors: those of the
  /// runtime; KoloError(kConfig) for momentum correction that is not that of the optimizer.
  DistributedOptimizer(Runtime& runtime, ParameterSet& parameters,
                       std::unique_ptr<Optimizer> optimizer, const Options& options,
                       const Clock& clock);
  ~DistributedOptimizer() override;
  DistributedOptimizer(const DistributedOptimizer&) = delete;
  DistributedOptimizer& operator=(const DistributedOptimizer&) = delete;

  float loss_scale() const override { return gate_.loss_scale(); }
  void take_part(const Turnout& turnout) override;
  void await_averages() override;
  UpdateVerdict clip() override;
  StepReport update(float lr, const UpdateVerdict& verdict) override;

  /// Everything but the parameters. Between steps; restoring is collective.
  void visit_state(StateVisitor& visitor) override;

  PlanSummary plan() const override { return gradients_.plan(); }
  std::vector<CompressionStats> compression_stats() const override {
    return gradients_.compression_stats();
  }
  UpdateMemory memory() override;

 private:
  void update_all(float lr, float gradient_scale);
  /// Determines how each gradient is treated in the next step; that may change after any step.
  void begin_step();
  /// Before a gradient is marked: directions for the sparse ones, observed while they are dense.
  void prepare(std::size_t index);
  void update(std::size_t index, float lr, float gradient_scale);
  /// Errors: KoloError(kConfig) unless the momentum that is corrected is the optimizer's.
  void require_momentum(std::size_t index) const;
  /// Scales the sparse gradients, whose residuals carry no loss scale.
  void scale_sparse(std::size_t index, float factor);
  /// Makes a call of Kolo and counts its time as exposed.
  template <typename Call>
  void communicate(Call&& call) {
    const TimePoint begin = clock_.now();
    call();
    exposed_ += clock_.now() - begin;
  }

  Runtime& runtime_;
  ParameterSet& parameters_;
  const ShardPlan shares_;  // of the work of taking norms; parts of norms of tensors
  std::unique_ptr<Optimizer> optimizer_;
  UpdateGate gate_;
  const Clock& clock_;
  Turnout turnout_;
  float unscale_ = 1.0f;                   // of this step: 1 / loss scale, which `clip` may change
  Duration exposed_{0};                    // Since the last step.
  const std::vector<std::size_t> places_;  // in `gradients_`, by parameter; not of rows
  GradientSet gradients_;
  RowExchange rows_;
  std::optional<OwnDirections> directions_;  // of an adaptive optimizer with sparse gradients
  // In this step, by parameter; false for rows.
  std::vector<bool> is_sparse_, corrects_momentum_, is_observed_, becomes_direction_;
};

}  // namespace kolo::trainer
