#include "topology/node_costs.h"

#include <gmock/gmock.h>

#include <numeric>
#include <random>

namespace kolo {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::IsEmpty;

LinkCosts with_rates(std::vector<double> rates) {
  LinkCosts costs;
  costs.network.bytes_per_us = 100;
  costs.node_rates = std::move(rates);
  return costs;
}

TEST(NodeShares, AreEqualWhereNothingIsGained) {
  EXPECT_THAT(node_shares(with_rates({}), 4), IsEmpty());
  EXPECT_THAT(node_shares(with_rates({100, 50}), 2), IsEmpty());
  EXPECT_THAT(node_shares(with_rates({100, 50, 100}), 4), IsEmpty());  // of another grid
}

TEST(NodeShares, FollowTheRatesAndLeaveOutTheSlow) {
  const auto near = [](double value) { return DoubleNear(value, 1e-12); };
  EXPECT_THAT(node_shares(with_rates({200, 100, 200}), 3), ElementsAre(near(0.5), 0, near(0.5)));
  EXPECT_THAT(node_shares(with_rates({100, 100, 100}), 3),
              ElementsAre(near(1. / 3), near(1. / 3), near(1. / 3)));
  // All finish at the same time: 1.6 buckets on the fast links, 1.2 on the slow one.
  EXPECT_THAT(node_shares(with_rates({100, 100, 100, 75}), 4),
              ElementsAre(near(0.3), near(0.3), near(0.3), near(0.1)));
  EXPECT_THAT(node_shares(with_rates({200, 0, 200}), 3), ElementsAre(near(0.5), 0, near(0.5)));
}

TEST(NodeShares, NoOtherSharesAreFaster) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> rate(20, 100), weight(0, 1);
    std::vector<double> rates(3 + seed % 6);
    for (double& each : rates) each = rate(random);
    const LinkCosts costs = with_rates(rates);
    const std::vector<double> shares = node_shares(costs, static_cast<int>(rates.size()));
    ASSERT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-9) << "seed " << seed;
    const double best = link_us_per_byte(costs, shares);
    for (int trial = 0; trial < 20; ++trial) {
      std::vector<double> other(shares.size());
      for (double& each : other) each = weight(random);
      const double sum = std::accumulate(other.begin(), other.end(), 0.0);
      for (double& each : other) each /= sum;
      EXPECT_GE(link_us_per_byte(costs, other), best * (1 - 1e-9)) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace kolo
