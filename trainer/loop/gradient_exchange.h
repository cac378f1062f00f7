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

/// A ParameterUpdater for ranks that each update all weights. Gradients are in the runtime's arena
/// and are averaged over a group, usually the group of all ranks. Each gradient is marked ready as
/// soon as the backward pass has written it; a step waits for the averages.
///
/// Some averages are directions that the optimizer applies as they are (`Optimizer::follow`):
/// averages of gradients with momentum correction, and sparse averages with an adaptive optimizer.
/// For the latter, from the first step after the dense warm-up on, each rank marks directions ready
/// in place of gradients (`OwnDirections`); these are not clipped.
///
/// Gradients are float32 or bfloat16. A bfloat16 gradient is rounded when it is written, summed in
/// float32, and rounded once more. Norms and updates are computed in float32.
///
/// Sparse gradients of tables (`Parameter::rows`) are averaged in float32, without compression.
class GradientExchange final : public ParameterUpdater {
 public:
  struct Options {
    UpdateGate::Options gate = {};
    std::string compression = "none";  ///< Compression rules by parameter.
    /// Dtype of gradients except rows. kBFloat16 excludes sparse compression.
    DType gradient_dtype = DType::kFloat32;
    /// Whether averages are weighted by samples (`take_part`) and ranks without samples join.
    bool counts_samples = false;
    /// Bytes of the parts into which the computation of norms is divided among ranks.
    std::size_t norm_bytes = std::size_t{1} << 20;
    /// Set if the model is split; then norms are those of the whole model, over all ranks of the
    /// mesh. The mesh outlives the updater.
    Mesh* mesh = nullptr;
  };

  /// Registers the gradients and broadcasts the parameters of rank 0. Errors: those of the runtime;
  /// KoloError(kConfig) if momentum correction has another momentum than the optimizer.
  GradientExchange(Group& group, ParameterSet& parameters, std::unique_ptr<Optimizer> optimizer,
                   const Options& options, const Clock& clock);
  ~GradientExchange() override;
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  /// Averages gradients over `group` from the next step on, and sends them in their own dtype. Call
  /// between steps. Collective over `group`, which outlives this object. Before: no gradient may
  /// become sparse.
  void average_over(Group& group);

  float loss_scale() const override { return gate_.loss_scale(); }
  void take_part(const ParticipationWeight& weight) override;
  void await_averages() override;
  UpdateVerdict clip() override;
  StepReport update(float lr, const UpdateVerdict& verdict) override;

  /// Visits all state except the parameters. Call between steps; restoring is collective.
  void visit_state(StateVisitor& visitor) override;

  PlanSummary plan() const override { return gradients_.plan(); }
  std::vector<CompressionStats> compression_stats() const override {
    return gradients_.compression_stats();
  }
  UpdateMemory memory() override;

 private:
  /// Registers the gradients in `group`. An empty `wire_dtype` means that of the runtime's options.
  GradientSet register_in(Group& group, std::optional<DType> wire_dtype) const;
  void bind_gradients();
  void update_all(float lr, float gradient_scale);
  /// Determines how the next step treats each gradient; the runtime may change this after any step.
  void begin_step();
  /// Replaces a sparse gradient by its direction, and observes a gradient that may become sparse
  /// later. Called before a gradient is marked ready.
  void prepare(std::size_t index);
  void update(std::size_t index, float lr, float gradient_scale);
  /// Errors: KoloError(kConfig) if momentum correction has another momentum than the optimizer.
  void require_momentum(std::size_t index) const;
  /// Multiplies gradient `index` by `factor` if it is sparse. Residuals have no loss scale, so
  /// sparse gradients lose it before they are sent and get it back afterwards.
  void scale_sparse(std::size_t index, float factor);
  /// Calls `call`, which calls the runtime, and counts its time as exposed communication.
  template <typename Call>
  void communicate(Call&& call) {
    const TimePoint begin = clock_.now();
    call();
    exposed_ += clock_.now() - begin;
  }

  const Options options_;
  Group* group_;
  ParameterSet& parameters_;
  ShardPlan shares_;  // divides the computation of norms among ranks
  std::unique_ptr<Optimizer> optimizer_;
  UpdateGate gate_;
  const Clock& clock_;
  ParticipationWeight participation_;
  float unscale_ = 1.0f;                   // 1 / loss scale before `clip`, which may change it
  Duration exposed_{0};                    // exposed communication since the last step
  const std::vector<std::size_t> places_;  // index in `gradients_` by parameter; unused for rows
  GradientSet gradients_;
  std::optional<RowExchange> rows_;
  std::optional<OwnDirections> directions_;  // set if an adaptive optimizer has sparse gradients
  // Treatment of each gradient in this step, by parameter; none for rows.
  std::vector<bool> is_sparse_, corrects_momentum_;
  std::vector<Adaptive> roles_;
  const std::vector<bool> needs_direction_;  // by parameter, in any step
};

}  // namespace kolo::trainer
