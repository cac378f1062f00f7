#include "trainer/precision/precision.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "trainer/errors.h"

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
  if (options_.mode == Mode::kFixed) return state_.steps < kMostOverflows;
  return options_.mode == Mode::kDynamic && state_.scale > kLeast;
}

void LossScaler::update(bool has_overflowed) {
  if (options_.mode == Mode::kFixed) state_.steps = has_overflowed ? state_.steps + 1 : 0;
  if (options_.mode != Mode::kDynamic) return;
  if (has_overflowed) {
    state_ = {.scale = std::max(kLeast, 0.5f * state_.scale), .steps = 0};
  } else if (++state_.steps == options_.clean_steps_to_double) {
    state_ = {.scale = std::min(kMost, 2.0f * state_.scale), .steps = 0};
  }
}

void LossScaler::restore(const State& state) {
  check_scale(state.scale);
  state_ = state;
}

DType parse_precision(const std::string& text) {
  const std::optional<DType> dtype = parse_dtype(text);
  if (dtype == DType::kFloat32 || (dtype && is_16bit_float(*dtype))) return *dtype;
  throw_unknown_choice("--precision", text, {"float32", "bfloat16", "float16"});
}

DType parse_gradients(const std::string& text) {
  const std::optional<DType> dtype = parse_dtype(text);
  if (dtype == DType::kFloat32 || dtype == DType::kBFloat16) return *dtype;
  throw_unknown_choice("--gradients", text, {"auto", "float32", "bfloat16"});
}

LossScaler::Options parse_loss_scale(const std::string& text, DType precision) {
  using Mode = LossScaler::Mode;
  if (text == "off") return {.mode = Mode::kOff};
  if (text == "dynamic") return {.mode = Mode::kDynamic};
  if (text == "auto") {
    return {.mode = precision == DType::kFloat16 ? Mode::kDynamic : Mode::kOff};
  }
  float scale = 0.0f;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, scale);
  if (error == std::errc() && stop == end && std::isfinite(scale) && scale > 0.0f) {
    return {.mode = Mode::kFixed, .scale = scale};
  }
  throw_config_error(
      fmt::format("--loss-scale: '{}' is not auto, off, dynamic or a number greater than 0", text));
}

}  // namespace kolo::trainer
