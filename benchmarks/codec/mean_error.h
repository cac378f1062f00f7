#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/base/dtype.h"

namespace kolo::bench {

/// Errors of a mean over 16-bit contributions, in units in the last place of the wire type at the
/// exact mean of the rounded contributions (float64 sums of so few values are exact enough).
struct ErrorStats {
  double most = 0;
  double rms = 0;
};

/// One method to compute the mean over some ranks.
struct MeanErrorRow {
  DType wire = DType::kFloat16;
  int ranks = 0;
  /// direct: Kolo's. two-level: Kolo's, with a rounded sum in each node of `per_node` ranks. ring:
  /// a partial sum is rounded at every hop, and the mean once more. ring-premultiplied: as ring,
  /// with contributions first multiplied by 1 / ranks in the wire dtype.
  std::string method;
  int per_node = 1;
  ErrorStats error = {};
};

struct MeanErrorOptions {
  std::size_t count = 1 << 16;  ///< Elements.
  float deviation = 0.25f;      ///< Standard deviation of the contributions, whose mean is 1.
  std::uint64_t seed = 7;
};

/// Simulates means of normal random numbers. A small deviation favours the rings: if contributions
/// nearly cancel, the roundings of large partial sums are many units of a small mean. The first two
/// methods run the kernels of the schedules; the rings are implemented here, for comparison.
///
/// Threads: pure; any. Returns a row for each method that exists for the number of ranks.
std::vector<MeanErrorRow> measure_mean_errors(DType wire, int ranks,
                                              const MeanErrorOptions& options);

}  // namespace kolo::bench
