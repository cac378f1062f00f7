#include "topology/node_shares.h"

#include <algorithm>
#include <functional>

namespace kolo {
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
  // If the k fastest nodes make all sums and are done at once, a bucket takes `us` per byte:
  // their links carry k + n - 2 buckets. A node whose link then carries a bucket alone no sooner
  // takes no part.
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
