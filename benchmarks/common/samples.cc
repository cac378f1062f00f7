#include "benchmarks/common/samples.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <optional>

#include "comm/base/check.h"
#include "topology/link_fit.h"

namespace kolo::bench {
namespace {

/// With 100 samples, one sample is above the 99th percentile.
constexpr std::size_t kLeastForP99 = 100;

constexpr double kMuchSlower = 1.1;

/// Returns the times of rounds `first`, `first` + 2, and so on.
RoundTimes every_second(std::span<const double> rounds, std::size_t first) {
  RoundTimes half;
  for (std::size_t round = first; round < rounds.size(); round += 2) half.push_back(rounds[round]);
  return half;
}

}  // namespace

Summary summarise(std::vector<double> samples) {
  check(!samples.empty(), "nothing was measured");
  std::sort(samples.begin(), samples.end());
  const std::size_t size = samples.size();
  const auto count = static_cast<double>(size);
  Summary summary{.mean = std::accumulate(samples.begin(), samples.end(), 0.0) / count,
                  .median = (samples[(size - 1) / 2] + samples[size / 2]) / 2,
                  .min = samples.front()};
  if (size >= kLeastForP99) {
    summary.p99 = samples[static_cast<std::size_t>(std::ceil(count * 0.99)) - 1];
  }
  return summary;
}

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
  check(best.has_value(), "no peer has a sample of every round");
  return {.best = *best,
          .ratio = paired_ratio(every_second(rounds, 1), every_second(others[*best], 1))};
}

Verdict find_better(std::size_t challengers,
                    const std::function<Trial(const std::vector<std::size_t>&)>& measure,
                    const std::function<bool()>& is_quiet) {
  Verdict verdict;
  double usual_us = 0;  // of the champion in the first trial of an attempt
  const auto is_fair = [&](const std::vector<std::size_t>& tried) {
    const auto [rounds, calls] = measure(tried);
    const auto best =
        std::ranges::min_element(calls.begin() + 1, calls.end(), {}, &Summary::median);
    const auto index = static_cast<std::size_t>(best - calls.begin());
    verdict.best = tried[index - 1];
    verdict.gain = paired_ratio(rounds.front(), rounds[index]);
    verdict.champion_us = calls.front().median;
    verdict.best_us = best->median;
    if (usual_us == 0) usual_us = verdict.champion_us;
    const auto is_spread = [](const Summary& each) { return each.median > kMostSpread * each.min; };
    const auto [less, more] = std::minmax({usual_us, verdict.champion_us});
    return !is_spread(calls.front()) && !is_spread(*best) && more <= kMostDifference * less;
  };
  std::vector<std::size_t> all(challengers);
  std::iota(all.begin(), all.end(), std::size_t{0});
  const auto attempt = [&] {
    usual_us = 0;
    if (!is_fair(all)) return Outcome::kBusy;
    if (verdict.gain.median < 1 + kLeastGain) return Outcome::kNotFaster;
    if (!is_fair({verdict.best})) return Outcome::kBusy;
    if (verdict.gain.low < 1 + kLeastGain) return Outcome::kNotFaster;
    return is_quiet() ? Outcome::kKept : Outcome::kBusy;
  };
  while (verdict.outcome == Outcome::kBusy && verdict.attempts < kMostAttempts) {
    ++verdict.attempts;
    verdict.outcome = attempt();
  }
  return verdict;
}

}  // namespace kolo::bench
