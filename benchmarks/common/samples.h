#pragma once

#include <vector>

namespace kolo::bench {

/// What a set of times says, in the unit of the times.
struct Summary {
  double mean = 0;
  double median = 0;  ///< Of an even number: the mean of the middle two.
  double min = 0;
  double p99 = 0;  ///< 99 of 100 are at most this.
};

/// Errors: UsageError if there is no sample.
Summary summarise(std::vector<double> samples);

}  // namespace kolo::bench
