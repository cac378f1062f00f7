#pragma once

#include <optional>
#include <vector>

namespace kolo::bench {

/// Statistics of a set of times, in the unit of the times.
struct Summary {
  double mean = 0;
  double median = 0;  ///< Of an even number of samples, the mean of the middle two.
  double min = 0;
  /// 99 of 100 samples are at most this. None for fewer than 100 samples, of which it would be the
  /// maximum.
  std::optional<double> p99 = std::nullopt;
};

/// Errors: UsageError if there is no sample.
Summary summarise(std::vector<double> samples);

}  // namespace kolo::bench
