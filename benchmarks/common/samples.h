#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
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

/// The times of a champion, at index 0, and of challengers, which are measured in turns.
struct Trial {
  std::vector<RoundTimes> rounds;
  std::vector<Summary> calls;
};

enum class Outcome { kKept, kNotFaster, kBusy };
struct Verdict {
  Outcome outcome = Outcome::kBusy;
  std::size_t best = 0;  ///< Index of the best challenger.
  PairedRatio gain;      ///< The ratio of the champion's times to those of `best`.
  double champion_us = 0, best_us = 0;
  int attempts = 0;
};

inline constexpr int kMostAttempts = 3;
/// A challenger is kept if it is faster by this share in three of four rounds.
inline constexpr double kLeastGain = 0.05;

/// Finds the best of `challengers`, and measures it once more, so that luck does not judge. The
/// rules of link costs tell a busy machine: half of a contender's times are over `kMostSpread`
/// times the shortest, the champion's differ by more than `kMostDifference` between trials, or
/// `is_quiet`, asked before a challenger is kept, says no. Then all is repeated. `measure` takes
/// indices of challengers. Errors: those of the functions.
Verdict find_better(std::size_t challengers,
                    const std::function<Trial(const std::vector<std::size_t>& tried)>& measure,
                    const std::function<bool()>& is_quiet);

}  // namespace kolo::bench
