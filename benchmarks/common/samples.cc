#include "benchmarks/common/samples.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "comm/base/check.h"

namespace kolo::bench {
namespace {

/// One sample in a hundred lies above a 99th percentile.
constexpr std::size_t kLeastForP99 = 100;

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

}  // namespace kolo::bench
