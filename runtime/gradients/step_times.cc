#include "runtime/gradients/step_times.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

namespace kolo {
namespace {

constexpr std::size_t kColdSteps = 3;

/// Returns the lower quartile of the times of the warm steps.
double lower_quartile(std::vector<double> steps_us) {
  const std::span warm = std::span(steps_us).subspan(std::min(kColdSteps, steps_us.size()));
  if (warm.empty()) return 0;
  const auto quarter = warm.begin() + static_cast<std::ptrdiff_t>(warm.size() / 4);
  std::ranges::nth_element(warm, quarter);
  return *quarter;
}

}  // namespace

void StepTimes::begin_wait() {
  if (clock_ != nullptr && !wait_began_) wait_began_ = clock_->now();
}

void StepTimes::pause_wait() {
  const auto began = std::exchange(wait_began_, std::nullopt);
  if (clock_ != nullptr && began) paused_wait_ += clock_->now() - *began;
}

void StepTimes::end_step() {
  const auto waited_since = std::exchange(wait_began_, std::nullopt);
  const Duration waited_before = std::exchange(paused_wait_, Duration{0});
  if (clock_ == nullptr) return;
  const TimePoint now = clock_->now();
  if (step_began_ && waited_since) {
    steps_us_.push_back(to_us(now - *step_began_));
    waits_us_.push_back(to_us(waited_before + (now - *waited_since)));
  }
  step_began_ = now;
}

DenseSteps StepTimes::take() {
  clock_ = nullptr;
  step_began_.reset();
  return {.step_us = lower_quartile(std::exchange(steps_us_, {})),
          .exposed_us = lower_quartile(std::exchange(waits_us_, {}))};
}

}  // namespace kolo
