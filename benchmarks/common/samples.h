#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace kolo::bench {

/// Statistics of a set of times, in the unit of the times.
struct Summary {
  double mean = 0;
  double median = 0;  ///< For an even number of samples, the mean of the middle two.
  double min = 0;
  /// 99 % of the samples are at most this. Empty for fewer than 100 samples, where it would be the
  /// maximum.
  std::optional<double> p99 = std::nullopt;
};

/// Errors: UsageError if there is no sample.
Summary summarise(std::vector<double> samples);

/// Time of `work` in microseconds.
template <typename Work>
double time_us(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

/// The ratio of the times of two alternating systems, round by round: a disturbance of both in one
/// round cancels out.
struct PairedRatio {
  double median = 1;
  double low = 1, high = 1;  ///< The quartiles.
  double slower_share = 0;   ///< Share of the rounds in which the first took more than 10 % longer.
};

/// Shape:   times of equal rounds, equally many for both.
/// Threads: pure; any. Errors: UsageError if there is no round, or the numbers differ.
PairedRatio paired_ratio(std::span<const double> rounds, std::span<const double> others);

/// The times of one contender by round; shorter if it was dropped.
using RoundTimes = std::vector<double>;

/// The best of `others`, and the ratio of `rounds` to it.
struct Rivalry {
  std::size_t best = 0;
  PairedRatio ratio;
};

/// The best is the contender with the lowest median in rounds 0, 2, 4, ..., and is judged by rounds
/// 1, 3, 5, ...: if the same rounds chose and judged it, the best of many equal ones would seem
/// better than it is. Errors: UsageError if fewer than two rounds are complete, or no contender
/// took part in all.
Rivalry best_rival(std::span<const double> rounds, std::span<const RoundTimes> others);

}  // namespace kolo::bench
