#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "comm/base/clock.h"
#include "runtime/api/kolo.h"
#include "trainer/loop/learner.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/optimizer/update_gate.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(ParameterSet&)>;

struct AsyncOptions {
  UpdateGate::Options gate = {};
  /// Number of steps by which a rank may be ahead of the slowest one; empty: any number.
  std::optional<std::uint64_t> staleness = {};
};

/// Makes an updater for asynchronous SGD. Each rank owns a part of the weights, with the state of
/// the optimizer that `make` makes for it. In a step, a rank pushes its own gradients to all owners
/// and pulls the weights that result. An owner applies each push as it comes, with the learning
/// rate of the rank's step divided by the number of ranks: so one step of each rank moves the
/// weights about as far as a synchronous step.
///
/// A step waits for another rank only if that rank is too many steps behind. Norms and clipping
/// apply to the gradients of a rank. A checkpoint has the same pieces as with shards.
///
/// Collective. Errors: those of the runtime and of `make`; KoloError(kConfig) naming an option that
/// excludes asynchronous steps.
std::unique_ptr<ParameterUpdater> make_async_updater(Runtime& runtime, ParameterSet& parameters,
                                                     MakeOptimizer make,
                                                     const AsyncOptions& options,
                                                     const Clock& clock);

}  // namespace kolo::trainer
