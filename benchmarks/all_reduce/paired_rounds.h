#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace kolo::bench {

/// How much longer one way takes than another with which it took turns, round by round: what slows
/// both down in a round cancels out.
struct PairedRatio {
  double median = 1;
  double low = 1, high = 1;  ///< The quartiles.
  double slower_share = 0;   ///< Of the rounds in which it took more than 10 % longer.
};

/// Shape:   times of equal rounds, as many of both.
/// Threads: pure; any. Errors: UsageError if there is no round, or the numbers differ.
PairedRatio paired_ratio(std::span<const double> rounds, std::span<const double> others);

/// The times of one way in each round; fewer than others have if it was given up.
using RoundTimes = std::vector<double>;

/// Which of `others` is best, and how `rounds` compare with it.
struct Rivalry {
  std::size_t best = 0;
  PairedRatio ratio;
};

/// The best is the one with the least median of the rounds 0, 2, 4, ..., and is judged by the
/// others, 1, 3, 5, ...: the luckiest of many equal ones would seem better than it is if the same
/// rounds chose and judged it.
/// Errors: UsageError if fewer than two rounds are complete, or nobody took part in all.
Rivalry best_rival(std::span<const double> rounds, std::span<const RoundTimes> others);

}  // namespace kolo::bench
