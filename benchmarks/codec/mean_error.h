#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/base/dtype.h"

namespace kolo::bench {

/// Errors of the elements of a mean over 16-bit contributions, relative to the exact mean of the
/// rounded contributions. The unit is the distance between two neighbouring values of the wire
/// dtype at the exact mean. Sums in float64 serve as exact.
struct ErrorStats {
  double most = 0;
  double rms = 0;
};

/// The error of one method of computing the mean over `ranks` contributions.
struct MeanErrorRow {
  DType wire = DType::kFloat16;
  int ranks = 0;
  /// "direct": Kolo sums all contributions and rounds once. "two-level": Kolo also rounds the sum
  /// of each node of `per_node` ranks. "ring": a partial sum is rounded at every hop, and the mean
  /// once more. "ring-premultiplied": a ring of contributions that are first multiplied by 1 /
  /// ranks in the wire dtype.
  std::string method;
  int per_node = 1;
  ErrorStats error = {};
};

struct MeanErrorOptions {
  std::size_t count = 1 << 16;  ///< Number of elements of the mean.
  float deviation = 0.25f;      ///< Standard deviation of the contributions, whose mean is 1.
  std::uint64_t seed = 7;
};

/// Computes the mean of normal random numbers by each method, and its error. A small deviation
/// favours the rings: if contributions nearly cancel, the rounding errors of large partial sums are
/// many units of a small mean. "direct" and "two-level" run the kernels of Kolo's schedules; the
/// rings are implemented here, for comparison.
///
/// Threads: pure; any. Returns one row for each method; "two-level" is missing if no division of
/// the ranks into nodes fits.
std::vector<MeanErrorRow> measure_mean_errors(DType wire, int ranks,
                                              const MeanErrorOptions& options);

}  // namespace kolo::bench
