#include "benchmarks/overlap/compute_work.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "benchmarks/common/exchange.h"

namespace kolo::bench {
namespace {

constexpr std::size_t kUnitsAtOnce = 50'000;

}  // namespace

ComputeWork::ComputeWork(Runtime& runtime) {
  using Clock = std::chrono::steady_clock;
  values_.fill(1.0f);
  unit_us_ = std::numeric_limits<double>::infinity();
  // The best of a few: the core's clock rises first, and others may disturb.
  for (int i = 0; i < 5; ++i) {
    runtime.barrier();
    const auto start = Clock::now();
    run(kUnitsAtOnce);
    const std::chrono::duration<double, std::micro> elapsed = Clock::now() - start;
    double us = elapsed.count() / static_cast<double>(kUnitsAtOnce);
    max_over_ranks(runtime, {&us, 1});
    unit_us_ = std::min(unit_us_, us);
  }
}

std::size_t ComputeWork::units_of(double us) const {
  return static_cast<std::size_t>(us / unit_us_);
}

void ComputeWork::run(std::size_t units) {
  for (std::size_t unit = 0; unit < units; ++unit) {
    for (float& value : values_) value = value * 0.999f + 0.001f;
    // What was computed counts as looked at, so none of it is left out.
    asm volatile("" : : "g"(values_.data()) : "memory");
  }
}

}  // namespace kolo::bench
