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
  double median = 0;  ///< The mean of the middle two if the number of samples is even.
  double min = 0;
  /// The 99th percentile. Empty for fewer than 100 samples, because it would then be the maximum.
  std::optional<double> p99 = std::nullopt;
};

/// Computes the statistics. Errors: UsageError if there is no sample.
Summary summarise(std::vector<double> samples);

/// Returns the time that `work` takes, in microseconds.
template <typename Work>
double time_us(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

/// The ratio of the times of two alternating systems, computed round by round. A disturbance that
/// slows both systems in one round cancels out.
struct PairedRatio {
  double median = 1;
  double low = 1, high = 1;  ///< The lower and the upper quartile of the ratios.
  double slower_share = 0;   ///< Share of the rounds in which the first took over 10 % longer.
};

/// Computes the ratio of `rounds` to `others`.
/// Shape:   one time per round, equally many for both systems.
/// Threads: pure; any. Errors: UsageError if there is no round, or the numbers of rounds differ.
PairedRatio paired_ratio(std::span<const double> rounds, std::span<const double> others);

/// The times of one algorithm by round. There are fewer rounds if it was dropped.
using RoundTimes = std::vector<double>;

/// The index of the best of `others`, and the ratio of `rounds` to its times.
struct Rivalry {
  std::size_t best = 0;
  PairedRatio ratio;
};

/// Selects the best of `others` by the lowest median in rounds 0, 2, 4, ..., and compares it in
/// rounds 1, 3, 5, .... If the same rounds selected and compared it, the best of many equal ones
/// would seem better than it is. Errors: UsageError if there are fewer than two complete rounds, or
/// none of `others` has all rounds.
Rivalry best_rival(std::span<const double> rounds, std::span<const RoundTimes> others);

}  // namespace kolo::bench
