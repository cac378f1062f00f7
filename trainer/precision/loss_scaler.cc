#include "trainer/precision/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "comm/base/check.h"

namespace kolo::trainer {
namespace {

void check_scale(float scale) {
  check(std::isfinite(scale) && scale > 0.0f, "a loss scale is finite and greater than 0");
}

}  // namespace

LossScaler::LossScaler(const Options& options) : options_(options) {
  check_scale(options.scale);
  if (options.mode != Mode::kOff) state_.scale = options.scale;
}

bool LossScaler::can_skip() const {
  return options_.mode == Mode::kFixed ||
         (options_.mode == Mode::kDynamic && state_.scale > kLeast);
}

void LossScaler::update(bool has_overflowed) {
  if (options_.mode != Mode::kDynamic) return;
  if (has_overflowed) {
    state_ = {.scale = std::max(kLeast, 0.5f * state_.scale), .clean_steps = 0};
  } else if (++state_.clean_steps == options_.clean_steps_to_double) {
    state_ = {.scale = std::min(kMost, 2.0f * state_.scale), .clean_steps = 0};
  }
}

void LossScaler::restore(const State& state) {
  check_scale(state.scale);
  state_ = state;
}

}  // namespace kolo::trainer
