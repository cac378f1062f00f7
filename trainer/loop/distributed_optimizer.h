#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/api/kolo.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/optimizer/update_gate.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// Joins a model's parameters on the processor to the runtime: gradients live in the runtime's
/// arena, each one is handed over the moment the backward pass has written it, and a step waits for
/// the averages. What travels sparsely with its momentum corrected has none in the optimizer. An
/// adaptive optimizer preconditions what travels sparsely before it is handed over, from the first
/// step on that is not one of a dense warm-up; such steps are not clipped.
///
/// Collective: every rank makes one, with equal parameters, and calls `step` equally often.
/// Threads: one. `runtime` and `parameters` outlive it.
class DistributedOptimizer {
 public:
  struct Report {
    double gradient_norm;              ///< Of the averages, before clipping.
    std::chrono::nanoseconds exposed;  ///< Blocked until the last average was there.
    bool is_skipped;                   ///< See UpdateGate.
  };

  /// Registers the gradients and gives all ranks the parameters of rank 0.
  DistributedOptimizer(Runtime& runtime, ParameterSet& parameters,
                       std::unique_ptr<Optimizer> optimizer, const UpdateGate::Options& options);
  ~DistributedOptimizer();
  DistributedOptimizer(const DistributedOptimizer&) = delete;
  DistributedOptimizer& operator=(const DistributedOptimizer&) = delete;

  /// The factor that the loss of the next backward pass is multiplied by.
  float loss_scale() const { return gate_.loss_scale(); }

  /// After a backward pass: waits, checks, clips, updates.
  /// Errors: those of the runtime; as `UpdateGate::judge`.
  Report step(float lr);

  PlanSummary plan() const { return gradients_.plan(); }
  std::vector<CompressionStats> compression_stats() const { return gradients_.compression_stats(); }

 private:
  /// Notes how gradients travel in the next step, which may change at the end of one.
  void begin_step();
  void leave_out_momentum(std::size_t index);
  /// Multiplies those gradients that travel sparsely: what is left of them for later steps has no
  /// loss scale.
  void scale_sparse(std::size_t index, float factor);

  ParameterSet& parameters_;
  std::unique_ptr<Optimizer> optimizer_;
  UpdateGate gate_;
  GradientSet gradients_;
  // In this step, by gradient.
  std::vector<bool> is_sparse_, corrects_momentum_, becomes_direction_;
};

}  // namespace kolo::trainer
