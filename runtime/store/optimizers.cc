#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/base/span.h"
#include "runtime/store/store_server.h"

namespace kolo {
namespace {

using OptimizerState = OptimizerStates::OfKey;

void sgd(const StoreOptimizer& with, float lr, OptimizerState& state, Span<float> value,
         const float* pushed) {
  const auto momentum = static_cast<float>(with.momentum);
  const auto decay = static_cast<float>(with.weight_decay);
  const auto rescale = static_cast<float>(with.rescale);
  if (momentum != 0) state.first.resize(value.size());
  for (std::size_t i = 0; i < value.size(); ++i) {
    float step = rescale * pushed[i] + decay * value[i];
    if (momentum != 0) step = state.first[i] = momentum * state.first[i] + step;
    value[i] -= lr * step;
  }
}

void adam(const StoreOptimizer& with, float lr, OptimizerState& state, Span<float> value,
          const float* pushed) {
  state.first.resize(value.size());
  state.second.resize(value.size());
  ++state.steps;
  const bool is_decoupled = with.name == "adamw";
  const auto epsilon = static_cast<float>(with.epsilon);
  const auto decay = static_cast<float>(with.weight_decay);
  const auto rescale = static_cast<float>(with.rescale);
  const auto share1 = static_cast<float>(1 - with.beta1);
  const auto share2 = static_cast<float>(1 - with.beta2);
  const auto correction1 = static_cast<float>(1 / (1 - std::pow(with.beta1, state.steps)));
  const auto correction2 = static_cast<float>(1 / (1 - std::pow(with.beta2, state.steps)));
  for (std::size_t i = 0; i < value.size(); ++i) {
    const float decayed = decay * value[i];
    const float gradient = rescale * pushed[i] + (is_decoupled ? 0.0f : decayed);
    const float first = state.first[i] += share1 * (gradient - state.first[i]);
    const float second = state.second[i] += share2 * (gradient * gradient - state.second[i]);
    const float step = first * correction1 / (std::sqrt(second * correction2) + epsilon);
    value[i] -= lr * (is_decoupled ? step + decayed : step);
  }
}

}  // namespace

StoreUpdater make_updater(const StoreOptimizer& optimizer,
                          std::shared_ptr<OptimizerStates> states) {
  const bool is_sgd = optimizer.name == "sgd";
  check(is_sgd || optimizer.name == "adam" || optimizer.name == "adamw",
        fmt::format("the optimizer '{}' is not one of sgd, adam and adamw; set_updater takes a "
                    "function of yours",
                    optimizer.name));
  return [=](const StoreUpdate& update) {
    const Span<float> value(static_cast<float*>(update.value.data), update.value.count);
    (is_sgd ? sgd : adam)(optimizer, static_cast<float>(optimizer.lr * update.rate),
                          states->by_key[std::string(update.key)], value,
                          static_cast<const float*>(update.pushed.data));
  };
}

}  // namespace kolo
