#pragma once

#include <chrono>
#include <memory>

#include "runtime/kolo.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// Joins a model's parameters to the runtime: gradients live in the runtime's arena, each one is
/// handed over the moment the backward pass has written it, and a step waits for the averages.
///
/// Collective: every rank makes one, with equal parameters, and calls `step` equally often.
/// Threads: one. `runtime` and `parameters` outlive it.
class DistributedOptimizer {
 public:
  struct Options {
    double clip_norm = 0.0;  ///< Limit of the global norm of the averages; 0: none.
  };

  struct Report {
    double gradient_norm;              ///< Of the averages, before clipping.
    std::chrono::nanoseconds exposed;  ///< Blocked until the last average was there.
  };

  /// Registers the gradients and gives all ranks the parameters of rank 0.
  DistributedOptimizer(Runtime& runtime, ParameterSet& parameters,
                       std::unique_ptr<Optimizer> optimizer, const Options& options);
  ~DistributedOptimizer();
  DistributedOptimizer(const DistributedOptimizer&) = delete;
  DistributedOptimizer& operator=(const DistributedOptimizer&) = delete;

  /// After a backward pass: waits, clips, updates.
  Report step(float lr);

  PlanSummary plan() const { return gradients_.plan(); }

 private:
  ParameterSet& parameters_;
  std::unique_ptr<Optimizer> optimizer_;
  Options options_;
  GradientSet gradients_;
};

}  // namespace kolo::trainer
