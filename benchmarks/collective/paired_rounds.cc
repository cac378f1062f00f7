#include "benchmarks/collective/paired_rounds.h"

#include <algorithm>
#include <optional>

#include "benchmarks/common/samples.h"
#include "comm/base/check.h"

namespace kolo::bench {
namespace {

constexpr double kMuchSlower = 1.1;

/// Every second one of `rounds`.
RoundTimes every_second(std::span<const double> rounds, std::size_t first) {
  RoundTimes half;
  for (std::size_t round = first; round < rounds.size(); round += 2) half.push_back(rounds[round]);
  return half;
}

}  // namespace

PairedRatio paired_ratio(std::span<const double> rounds, std::span<const double> others) {
  check(!rounds.empty() && rounds.size() == others.size(), "rounds come in pairs");
  std::vector<double> ratios;
  for (std::size_t round = 0; round < rounds.size(); ++round) {
    ratios.push_back(rounds[round] / others[round]);
  }
  std::sort(ratios.begin(), ratios.end());
  const std::size_t last = ratios.size() - 1;
  const auto slower =
      std::count_if(ratios.begin(), ratios.end(), [](double ratio) { return ratio > kMuchSlower; });
  return {.median = summarise(ratios).median,
          .low = ratios[last / 4],
          .high = ratios[last - last / 4],
          .slower_share = static_cast<double>(slower) / static_cast<double>(ratios.size())};
}

Rivalry best_rival(std::span<const double> rounds, std::span<const RoundTimes> others) {
  check(rounds.size() >= 2, "one round chooses, another one judges");
  std::optional<std::size_t> best;
  double least = 0;
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (others[i].size() != rounds.size()) continue;
    const double median = summarise(every_second(others[i], 0)).median;
    if (best && median >= least) continue;
    best = i;
    least = median;
  }
  check(best.has_value(), "nobody else took part in all rounds");
  return {.best = *best,
          .ratio = paired_ratio(every_second(rounds, 1), every_second(others[*best], 1))};
}

}  // namespace kolo::bench
