#include "runtime/calibration/probe.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/base/clock.h"
#include "compression/gradient_codec.h"
#include "topology/process_grid.h"

namespace kolo {
namespace {

constexpr std::size_t kCount = std::size_t{1} << 18;
/// Number of codecs measured in turn. In training, a whole backward pass replaces the caches'
/// contents between two steps of a codec. Here the steps of the other codecs do, with 32 MiB in
/// all.
constexpr std::size_t kGroups = 8;
constexpr double kFew = 0.01, kMany = 0.04;
constexpr int kSelections = 4;  // the first one finds the threshold
constexpr double kBytesPerElement = 12;

/// Values of many magnitudes in random order, the same in every run.
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

/// Returns the median time of a step of one codec on one rank, without communication: selection,
/// encoding of the pairs as a payload, their sum as an owner, and the dense result.
double step_us(double density, const std::vector<float>& gradient) {
  const ProcessGrid alone = ProcessGrid::with_node_sizes({1});
  const SparseOptions options{.tensors = {{.name = "probe", .count = kCount}}, .density = density};
  const SparsePlan plan = sparse_layout(0, alone, options).plan;
  std::vector<std::unique_ptr<GradientCodec>> groups;
  std::vector<std::vector<float>> tensors;
  for (std::size_t i = 0; i < kGroups; ++i) {
    groups.push_back(options.method->make_codec(0, alone, options));
  }
  std::vector<std::byte> share(plan.share().capacity()), result(plan.result().capacity());
  const std::span<std::byte> shares[] = {share}, results[] = {result};
  const SteadyClock clock;
  std::vector<double> steps_us;
  for (int round = 0; round < kSelections; ++round) {
    tensors.assign(kGroups, gradient);
    for (std::size_t i = 0; i < kGroups; ++i) {
      GradientCodec& group = *groups[i];
      const CodecElements elements{.data = reinterpret_cast<std::byte*>(tensors[i].data()),
                                   .count = kCount};
      const Stopwatch watch(clock);
      group.encode(elements, shares);
      group.merge(shares, results);
      group.decode(results, elements, 1.0);
      group.commit();
      if (round > 0) steps_us.push_back(watch.us());
    }
  }
  const auto middle = steps_us.begin() + static_cast<std::ptrdiff_t>(steps_us.size() / 2);
  std::ranges::nth_element(steps_us, middle);
  return *middle;
}

}  // namespace

SelectorCost probe_selector() {
  constexpr double kLeastUs = 1e-3;
  const auto pairs = [](double density) {
    return static_cast<double>(pairs_to_keep(density, kCount));
  };
  const std::vector<float> gradient = noise();
  const double few_us = step_us(kFew, gradient);
  const double more_us = std::max(step_us(kMany, gradient) - few_us, 0.0);
  const double pair_us = more_us / (pairs(kMany) - pairs(kFew));
  const double elements_us = few_us - pairs(kFew) * pair_us;
  return {.bytes_per_us = kBytesPerElement * kCount / std::max(elements_us, kLeastUs),
          .pair_us = pair_us};
}

}  // namespace kolo
