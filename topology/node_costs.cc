#include "topology/node_costs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>

namespace kolo {

NodeMemory::NodeMemory(const MemoryCost& cost, double working_set_bytes) {
  constexpr double kMiB = 1 << 20;
  struct Point {
    double bytes, rate;
  };
  const std::array<Point, 4> points = {{{1 * kMiB, cost.cached_bytes_per_us},
                                        {8 * kMiB, cost.bytes_per_us_8m},
                                        {32 * kMiB, cost.bytes_per_us_32m},
                                        {64 * kMiB, cost.bytes_per_us}}};
  own_us_per_byte_ = 1 / points.front().rate;
  for (std::size_t i = 1; i < points.size(); ++i) {
    // The cost per byte does not fall with a larger working set, however noisy the measurement.
    const double before = own_us_per_byte_, at = std::max(before, 1 / points[i].rate);
    const double position = std::log(working_set_bytes / points[i - 1].bytes) /
                            std::log(points[i].bytes / points[i - 1].bytes);
    if (!(position > 0)) break;
    own_us_per_byte_ = before + (at - before) * std::min(position, 1.0);
  }
  shared_us_per_byte_ = std::max(1 / cost.shared_bytes_per_us, own_us_per_byte_);
  const double packed =
      cost.packs_past_cache() ? cost.streamed_bytes_per_us : cost.packed_bytes_per_us;
  // Slots stay in the cache with any working set; the tensors that are read and written do not.
  packed_us_per_byte_ = std::max(1 / packed, 3 * own_us_per_byte_);
}

namespace {

std::vector<double> known_rates(const LinkCosts& costs) {
  std::vector<double> rates = costs.node_rates;
  for (double& rate : rates) {
    if (rate <= 0) rate = costs.network.bytes_per_us;
  }
  return rates;
}

}  // namespace

std::vector<double> node_shares(const LinkCosts& costs, int num_nodes) {
  const auto nodes = static_cast<std::size_t>(num_nodes);
  if (nodes < 3 || costs.node_rates.size() != nodes) return {};
  const std::vector<double> rates = known_rates(costs);
  std::vector<double> fastest = rates;
  std::sort(fastest.begin(), fastest.end(), std::greater<>());
  // If the k fastest nodes compute all sums and finish together, a bucket takes `us` per byte,
  // because their links carry k + n - 2 buckets. A node computes no sums if its link takes longer
  // than that for one bucket, which it carries in any case.
  const double others = static_cast<double>(nodes) - 2;
  double us = 0, together = 0;
  for (std::size_t taking_part = 0; taking_part < nodes; ++taking_part) {
    if (taking_part > 0 && us * fastest[taking_part] <= 1) break;
    together += fastest[taking_part];
    us = (static_cast<double>(taking_part) + 1 + others) / together;
  }
  std::vector<double> shares;
  for (const double rate : rates) shares.push_back(std::max(0.0, (us * rate - 1) / others));
  return shares;
}

double link_us_per_byte(const LinkCosts& costs, const std::vector<double>& shares) {
  const std::vector<double> rates = known_rates(costs);
  double slowest = 0;
  for (std::size_t node = 0; node < shares.size(); ++node) {
    const double buckets = 1 + (static_cast<double>(shares.size()) - 2) * shares[node];
    slowest = std::max(slowest, buckets / rates[node]);
  }
  return slowest;
}

}  // namespace kolo
