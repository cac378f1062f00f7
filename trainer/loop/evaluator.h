#pragma once

#include <string_view>

#include "runtime/kolo.h"
#include "trainer/data/data_loader.h"
#include "trainer/loss/softmax_cross_entropy.h"
#include "trainer/models/model.h"

namespace kolo::trainer {

/// Adds up `sums` over all ranks. Collective; `name` identifies the exchange.
LossSums sum_over_ranks(Runtime& runtime, std::string_view name, LossSums sums);

/// Loss and accuracy over one epoch of `loader`, whose samples the ranks share. Collective; the
/// result is the same on all ranks.
LossSums evaluate(Runtime& runtime, Model& model, SoftmaxCrossEntropy& loss, DataLoader& loader);

}  // namespace kolo::trainer
