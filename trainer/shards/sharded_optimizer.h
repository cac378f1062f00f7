#pragma once

#include <functional>
#include <memory>

#include "trainer/loop/learner.h"

namespace kolo::trainer {

struct ShardOptions {
  UpdateGate::Options gate = {};
  /// What a rank keeps of gradients for the step: all, or those of its shards (ZeRO-2).
  enum class Keep { kWhole, kShards } keep = Keep::kWhole;
};

/// Updates parameters by shards. `make` is called when the parameters know which elements this rank
/// owns.
/// Errors: those of the runtime and of `make`; KoloError(kConfig) naming an option of the runtime
///         that does not go with shards.
std::unique_ptr<ParameterUpdater> make_sharded_optimizer(
    Runtime& runtime, ParameterSet& parameters,
    const std::function<std::unique_ptr<Optimizer>(ParameterSet&)>& make,
    const ShardOptions& options, const Clock& clock);

}  // namespace kolo::trainer
