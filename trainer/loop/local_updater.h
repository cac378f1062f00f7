#pragma once

#include <cstdint>
#include <memory>

#include "comm/base/clock.h"
#include "runtime/api/kolo.h"
#include "trainer/loop/gradient_exchange.h"
#include "trainer/loop/learner.h"
#include "trainer/loop/weight_exchange.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// Options of local steps and of exchanges of weights.
struct LocalOptions {
  ExchangeTimes times;
  OuterOptimizer outer = {};
  std::uint64_t after = 0;  ///< Number of steps with averages over all ranks before local steps.
  enum class Unit { kRank, kNode } unit = Unit::kRank;  ///< Unit that takes local steps.
};

/// Makes an updater for local SGD, post-local SGD, hierarchical averaging and DiLoCo. In local
/// steps, gradients are averaged and norms are taken within a unit: a rank or a node. After several
/// local steps, all ranks exchange their weights (`WeightExchange`). The state of the optimizer is
/// never averaged.
///
/// A checkpoint has the means of the weights, which other jobs can read, and the state from which
/// each rank resumes bit for bit. After local steps have begun, the number of ranks must stay the
/// same.
///
/// Collective. Errors: those of the runtime and of `WeightExchange`; KoloError(kConfig) naming an
/// option that excludes local steps.
std::unique_ptr<ParameterUpdater> make_local_updater(Runtime& runtime, ParameterSet& parameters,
                                                     std::unique_ptr<Optimizer> optimizer,
                                                     const LocalOptions& options,
                                                     const GradientExchange::Options& gradients,
                                                     const Clock& clock);

}  // namespace kolo::trainer
