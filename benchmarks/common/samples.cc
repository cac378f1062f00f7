#include "benchmarks/common/samples.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "comm/base/check.h"

namespace kolo::bench {

Summary summarise(std::vector<double> samples) {
  check(!samples.empty(), "nothing was measured");
  std::sort(samples.begin(), samples.end());
  const std::size_t size = samples.size();
  const auto count = static_cast<double>(size);
  const auto at_most = static_cast<std::size_t>(std::ceil(count * 0.99));
  return {.mean = std::accumulate(samples.begin(), samples.end(), 0.0) / count,
          .median = (samples[(size - 1) / 2] + samples[size / 2]) / 2,
          .min = samples.front(),
          .p99 = samples[at_most - 1]};
}

}  // namespace kolo::bench
