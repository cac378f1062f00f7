#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/base/clock.h"
#include "runtime/api/kolo.h"
#include "trainer/checkpoint/state_visitor.h"
#include "trainer/loop/parameter_updater.h"
#include "trainer/loop/row_exchange.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/optimizer/update_gate.h"
#include "trainer/parameter_set.h"
#include "trainer/shards/shard_plan.h"
#include "trainer/shards/sharded_gradients.h"

namespace kolo::trainer {

/// Updates parameters by shards: each rank gets the averages of the elements that it owns, keeps
/// the optimizer's state for these alone, updates them, and sends the new values to all. Values
/// travel in the background, those of the first layers first; the next forward pass waits for each
/// bucket where it first reads from it. A step sends the bytes of an all-reduce; on a bfloat16 wire
/// gradients take half of theirs, and values, which stay float32, all. These have the bits of an
/// update on all ranks where sums have (see the README of this folder).
///
/// Tables whose gradients are rows are updated on every rank, as without shards.
///
/// Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
///         Models", SC 2020, stages 1 and 2.
class ShardedOptimizer final : public ParameterUpdater {
 public:
  using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(ParameterSet&)>;

  struct Options {
    UpdateGate::Options gate = {};
    /// kShards: also the memory of gradients is shared out.
    ShardedGradients::Keep gradients = ShardedGradients::Keep::kWhole;
  };

  /// `make` is called when the parameters know which elements this rank owns.
  /// Errors: those of the runtime and of `make`; KoloError(kConfig) naming an option of the runtime
  ///         that does not go with shards.
  ShardedOptimizer(Runtime& runtime, ParameterSet& parameters, const MakeOptimizer& make,
                   const Options& options, const Clock& clock);
  ~ShardedOptimizer() override;
  ShardedOptimizer(const ShardedOptimizer&) = delete;
  ShardedOptimizer& operator=(const ShardedOptimizer&) = delete;

  float loss_scale() const override { return gate_.loss_scale(); }
  Report step(float lr) override;
  void visit_state(StateVisitor& visitor) override;
  PlanSummary plan() const override;
  std::vector<CompressionStats> compression_stats() const override { return {}; }
  UpdateMemory memory() override;

 private:
  void bind_values();
  void update(float lr, float gradient_scale);
  /// Sends the values of a bucket to all ranks.
  void begin_gather(std::size_t bucket);
  void finish_gather(std::size_t bucket);
  /// Makes a call of Kolo and counts its time as exposed.
  template <typename Call>
  void communicate(Call&& call) {
    const TimePoint begin = clock_.now();
    call();
    exposed_ += clock_.now() - begin;
  }

  Runtime& runtime_;
  ParameterSet& parameters_;
  const Clock& clock_;
  const std::size_t bucket_bytes_;
  const ShardPlan plan_;
  UpdateGate gate_;
  Duration exposed_{0};  // since the last step
  ShardedGradients gradients_;
  RowExchange rows_;
  std::shared_ptr<std::byte[]> memory_;         // of all values
  std::vector<std::span<float>> values_;        // by bucket
  std::vector<std::optional<Ticket>> gathers_;  // by bucket, while values are on their way
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace kolo::trainer
