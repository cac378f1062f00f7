#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

#include "runtime/api/kolo.h"
#include "trainer/data/data_loader.h"
#include "trainer/loop/learner.h"
#include "trainer/loss/loss.h"

namespace kolo::trainer {

/// Adds up `sums` over all ranks. Collective; `name` identifies the exchange.
LossSums sum_over_ranks(Runtime& runtime, std::string_view name, LossSums sums);

/// Loss and score over one epoch of `loader`, whose samples the ranks share. Calls `progress` with
/// the number of steps after each. Collective; the result is the same on all ranks. Before: the
/// sums of `learner` were taken.
LossSums evaluate(Runtime& runtime, Learner& learner, DataLoader& loader,
                  const std::function<void(std::size_t)>& progress);

}  // namespace kolo::trainer
