#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/base/clock.h"
#include "runtime/api/kolo.h"
#include "trainer/loop/job.h"
#include "trainer/report/summary.h"

namespace kolo::trainer {

/// Collects time, samples and sent bytes of this rank's steps. Threads: one.
class StepMeter {
 public:
  struct Step {
    Duration time;
    Duration exposed;  ///< Exposed communication; see StepReport.
    Duration passes;   ///< Time of all forward and backward passes.
    Duration waited;   ///< Time in which the passes waited for other stages.
    std::size_t samples;
    std::uint64_t wire_bytes;
  };
  void add(const Step& step) {
    step_ms_.push_back(to_us(step.time) / 1e3);
    exposed_ms_.push_back(to_us(step.exposed) / 1e3);
    passes_us_.push_back(to_us(step.passes));
    busy_us_.push_back(to_us(step.passes - step.waited));
    samples_ += step.samples;
    wire_bytes_ += step.wire_bytes;
    interval_ms_ += step_ms_.back();
    interval_exposed_ms_ += exposed_ms_.back();
    interval_samples_ += step.samples;
    ++interval_steps_;
  }

  /// Means over the steps since the last `take_interval`. Before: at least one step.
  struct Interval {
    double step_ms;
    double exposed_share;
    double samples_per_s;
  };
  Interval take_interval() {
    const Interval interval{.step_ms = interval_ms_ / static_cast<double>(interval_steps_),
                            .exposed_share = interval_exposed_ms_ / interval_ms_,
                            .samples_per_s = rate(interval_samples_, interval_ms_)};
    interval_ms_ = interval_exposed_ms_ = 0.0;
    interval_samples_ = interval_steps_ = 0;
    return interval;
  }

  /// Writes to `summary` the median times of a step, the rate over all steps, the bytes that all
  /// ranks sent per step, and the bubble. Collective.
  void enter(Summary& summary, Runtime& runtime) const {
    const std::uint64_t sent = wire_bytes_ / std::max<std::size_t>(step_ms_.size(), 1);
    for (const std::uint64_t bytes : gather(runtime, "wire bytes", sent)) {
      summary.wire_bytes_per_step += bytes;
    }
    const auto gather_us = [&](const char* name, const std::vector<double>& us) {
      return gather(runtime, name, static_cast<std::uint64_t>(median(us)));
    };
    const auto passes = gather_us("time of passes", passes_us_);
    const auto busy = gather_us("time without waits", busy_us_);
    const double span = static_cast<double>(std::ranges::max(passes)) * summary.ranks;
    if (busy != passes)
      summary.bubble = 1.0 - std::accumulate(busy.begin(), busy.end(), 0.0) / span;
    std::vector<double> compute_ms(step_ms_.size());
    std::ranges::transform(step_ms_, exposed_ms_, compute_ms.begin(), std::minus<>());
    summary.step_ms = median(step_ms_);
    summary.compute_ms = median(std::move(compute_ms));
    summary.exposed_comm_ms = median(exposed_ms_);
    summary.samples_per_s = rate(samples_, std::accumulate(step_ms_.begin(), step_ms_.end(), 0.0));
    const BufferView own_rate{&summary.samples_per_s, 1, DType::kFloat64};
    runtime.all_reduce("samples per second", own_rate, ReduceOp::kAverage).wait();
  }

 private:
  /// Samples per second; 0 if no step was taken, as when a finished job is resumed.
  static double rate(std::size_t samples, double ms) {
    return ms > 0.0 ? 1e3 * static_cast<double>(samples) / ms : 0.0;
  }

  std::vector<double> step_ms_, exposed_ms_, passes_us_, busy_us_;
  std::size_t samples_ = 0;
  std::uint64_t wire_bytes_ = 0;
  // Totals since the last `take_interval`.
  double interval_ms_ = 0.0, interval_exposed_ms_ = 0.0;
  std::size_t interval_samples_ = 0, interval_steps_ = 0;
};

}  // namespace kolo::trainer
