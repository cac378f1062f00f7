#include "topology/link_change.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <vector>

namespace kolo {
namespace {

using What = LinkChange::What;

LinkCosts costs(double bytes_per_us, double trip_us = 10) {
  LinkCosts costs;
  costs.network = {.latency_us = trip_us - 4, .bytes_per_us = bytes_per_us, .message_us = 2};
  return costs;
}

/// 400 messages over a link of `rate` that lets `burst` bytes pass ten times as fast; the receiver
/// is away for `pause_us` from half of the time on.
NetworkSamples samples(double rate, double burst, double pause_us = 0) {
  constexpr double kMessage = 4096;
  NetworkSamples result{.round_trips_us = {40, 22, 24}, .streams = {{.node = 1}}};
  const double half_us = (400 * kMessage - burst) / rate / 2;
  for (int i = 1; i <= 400; ++i) {
    const double bytes = i * kMessage;
    const double us = std::max(bytes / (10 * rate), (bytes - burst) / rate);
    result.streams.front().arrivals.push_back(
        {bytes, us > half_us ? std::max(us, half_us + pause_us) : us});
  }
  return result;
}

TEST(LinkChange, ALookHasTheRateBetweenTwo) {
  for (const double rate : {12.0, 120.0, 1200.0}) {
    for (const double burst : {0.0, 262144.0}) {
      for (const double pause_us : {0.0, 3e5 / rate}) {
        SCOPED_TRACE(testing::Message() << rate << ", burst " << burst << ", pause " << pause_us);
        const auto look = look_at(samples(rate, burst, pause_us), 4, burst);
        ASSERT_TRUE(look);
        EXPECT_EQ(look->node, 4);
        EXPECT_EQ(look->trip_us, 11);
        EXPECT_LE(look->least_rate, 1.01 * rate);
        EXPECT_GE(look->least_rate, 0.7 * rate);
        EXPECT_GE(look->most_rate, 0.99 * rate);
        if (pause_us > 0) continue;
        EXPECT_LE(look->most_rate, 1.2 * rate);
      }
    }
  }
  EXPECT_FALSE(look_at({}, 0, 0)) << "this rank has not asked";
}

TEST(LinkChange, WhatABurstExplainsMakesNoLinkFaster) {
  NetworkSamples cut = samples(12, 262144);
  cut.streams.front().arrivals.resize(60);
  EXPECT_EQ(look_at(cut, 0, 262144)->least_rate, 0);
}

TEST(LinkChange, IsWhatLooksAgreeOn) {
  const LinkLook away{.node = 2, .trip_us = 900, .least_rate = 1, .most_rate = 20};
  const LinkLook fine{.node = 2, .trip_us = 12, .least_rate = 90, .most_rate = 130};
  EXPECT_EQ(merge(away, fine),
            (LinkLook{.node = 2, .trip_us = 12, .least_rate = 1, .most_rate = 130}));
  EXPECT_EQ(merge(fine, away), merge(away, fine));
  const std::vector<LinkLook> disturbed{away}, both{merge(away, fine)};
  EXPECT_EQ(find_change(costs(118), disturbed),
            (LinkChange{.what = What::kRate, .node = 2, .before = 118, .now = 20}));
  EXPECT_FALSE(find_change(costs(118), both));
}

TEST(LinkChange, RatesChangeUpAndDownByMoreThanMeasuringDiffers) {
  for (const double before : {12.0, 118.0, 1200.0}) {
    for (const double factor : {0.01, 0.3, 0.4, 1.0, 2.5, 3.5, 100.0}) {
      SCOPED_TRACE(testing::Message() << before << " by " << factor);
      const double now = factor * before;
      const std::vector<LinkLook> links{{.trip_us = 10, .least_rate = now, .most_rate = now}};
      const auto change = find_change(costs(before), links);
      ASSERT_EQ(change.has_value(), factor * kRateChange < 1 || factor > kRateChange);
      if (change) {
        EXPECT_EQ(*change, (LinkChange{.what = What::kRate, .before = before, .now = now}));
      }
    }
  }
}

// The link of node 2 is slow, and was.
TEST(LinkChange, BothEndsOfASlowLinkAreExpectedToBeSlow) {
  LinkCosts before = costs(12);
  before.node_rates = {120, 120, 12, 120};
  const auto links = [](double first, double second) {
    return std::vector<LinkLook>{
        {.node = 0, .trip_us = 10, .least_rate = first, .most_rate = first},
        {.node = 2, .trip_us = 10, .least_rate = second, .most_rate = second}};
  };
  EXPECT_FALSE(find_change(before, links(119, 12)));
  EXPECT_EQ(find_change(before, links(119, 119)),
            (LinkChange{.what = What::kRate, .node = 2, .before = 12, .now = 119}));
  EXPECT_EQ(find_change(before, links(12, 12)),
            (LinkChange{.what = What::kRate, .node = 0, .before = 120, .now = 12}));
}

TEST(LinkChange, OnlyShorterTripsAreAChange) {
  for (const double longest : {1.0, 20.0, 1000.0}) {
    const std::vector<LinkLook> links{
        {.node = 0, .trip_us = 1, .least_rate = 118, .most_rate = 118},
        {.node = 2, .trip_us = longest, .least_rate = 118, .most_rate = 118}};
    const auto change = find_change(costs(118, 100), links);
    ASSERT_EQ(change.has_value(), longest == 1) << longest;
    if (change) {
      EXPECT_EQ(*change, (LinkChange{.what = What::kTrip, .before = 100, .now = 1}));
    }
  }
}

TEST(LinkChange, NothingSeenIsNoChange) { EXPECT_FALSE(find_change(costs(118), {})); }

}  // namespace
}  // namespace kolo
