#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/base/dtype.h"

namespace kolo::bench {

/// Errors of a mean over 16-bit contributions, in units in the last place of the wire type at the
/// exact mean of the rounded contributions (sums of so few in float64 are exact enough).
struct ErrorStats {
  double most = 0;
  double rms = 0;
};

/// One way to come by the mean, over some ranks.
struct MeanErrorRow {
  DType wire = DType::kFloat16;
  int ranks = 0;
  /// direct: ours. two-level: ours, with a rounded sum in each node of `per_node` ranks. ring: a
  /// partial sum is rounded at every hop, the mean once more. ring-premultiplied: the same of
  /// contributions that were multiplied by 1 / ranks, as the wire holds it, beforehand.
  std::string method;
  int per_node = 1;
  ErrorStats error = {};
};

struct MeanErrorOptions {
  std::size_t count = 1 << 16;  ///< Elements.
  float deviation = 0.25f;      ///< Of the contributions, whose mean is 1.
  std::uint64_t seed = 7;
};

/// Simulates means of normal random numbers. A small deviation is kind to the rings: where
/// contributions nearly cancel, the roundings of large partial sums are many units of a small mean.
/// The first two methods run the kernels that the schedules run; the rings are written here, for
/// comparison.
///
/// Threads: pure; any. Returns a row per method that there is for the number of ranks.
std::vector<MeanErrorRow> measure_mean_errors(DType wire, int ranks,
                                              const MeanErrorOptions& options);

}  // namespace kolo::bench
