#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
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

/// Throws UsageError for a setting with which no optimizer works. An `lr` of 0 begins a warm-up.
void check_settings(const StoreOptimizer& with) {
  const auto is_amount = [](double value) { return value >= 0 && std::isfinite(value); };
  const auto is_share = [](double value) { return value >= 0 && value < 1; };
  const struct {
    std::string_view name;
    double value;
    bool is_right;
    std::string_view range;
  } settings[] = {
      {"lr", with.lr, is_amount(with.lr), "at least 0"},
      {"momentum", with.momentum, is_share(with.momentum) || with.momentum == 1, "from 0 to 1"},
      {"weight_decay", with.weight_decay, is_amount(with.weight_decay), "at least 0"},
      {"beta1", with.beta1, is_share(with.beta1), "from 0 to less than 1"},
      {"beta2", with.beta2, is_share(with.beta2), "from 0 to less than 1"},
      {"epsilon", with.epsilon, is_amount(with.epsilon) && (with.epsilon > 0 || with.name == "sgd"),
       "above 0"},
      {"rescale", with.rescale, std::isfinite(with.rescale), "finite"}};
  for (const auto& setting : settings) {
    check(setting.is_right, [&] {
      return fmt::format("the optimizer's {} is {}, and must be {}", setting.name, setting.value,
                         setting.range);
    });
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
  check_settings(optimizer);
  return [=](const StoreUpdate& update) {
    const Span<float> value(static_cast<float*>(update.value.data), update.value.count);
    (is_sgd ? sgd : adam)(optimizer, static_cast<float>(optimizer.lr * update.rate),
                          states->by_key[std::string(update.key)], value,
                          static_cast<const float*>(update.pushed.data));
  };
}

}  // namespace kolo
