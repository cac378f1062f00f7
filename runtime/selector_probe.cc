#include "runtime/selector_probe.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "compression/kernels/top_k_selector.h"
#include "runtime/probe_wait.h"

namespace kolo {
namespace {

constexpr std::size_t kCount = std::size_t{1} << 19;  // beyond the nearer caches, 2 ms or so
constexpr std::size_t kPairs = kCount / 100;
constexpr int kRounds = 4;  // the first one finds the threshold
constexpr double kBytesPerElement = 12;

/// Of many magnitudes and in no order, the same in every run.
std::vector<float> noise() {
  std::vector<float> values(kCount);
  std::uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1.0p-31f;
    value *= value * value;
  }
  return values;
}

}  // namespace

SelectorCost probe_selector() {
  const std::vector<float> gradient = noise();
  std::vector<float> residual(kCount), sums(kCount), values(kPairs);
  std::vector<std::uint32_t> indices(kPairs);
  TopKSelector selector;
  SelectionHint hint;
  const SteadyClock clock;
  double select_us = 1e30;
  double update_us = 1e30;
  for (int round = 0; round < kRounds; ++round) {
    const Stopwatch select(clock);
    selector.select({.residual = residual.data(),
                     .gradient = gradient.data(),
                     .sums = sums.data(),
                     .count = kCount,
                     .k = kPairs,
                     .indices = indices.data(),
                     .values = values.data()},
                    hint);
    select_us = std::min(select_us, select.us());
    const Stopwatch update(clock);
    for (std::size_t j = 0; j < kPairs; ++j) residual[indices[j]] += values[j];
    update_us = std::min(update_us, update.us());
  }
  constexpr double kLeastUs = 1e-3;
  return {.bytes_per_us = kBytesPerElement * kCount / std::max(select_us, kLeastUs),
          .pair_us = update_us / kPairs};
}

}  // namespace kolo
