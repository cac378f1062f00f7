// Where keys live, and the built-in optimizers.

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/store/store_messages.h"
#include "runtime/store/store_server.h"

namespace kolo {
namespace {

TEST(StoreShards, AreWholeRowsOnServers) {
  const std::vector<int> servers{0, 2, 3};
  for (const std::size_t rows :
       {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{100}}) {
    for (const bool is_shared : {false, true}) {
      std::vector<std::size_t> used(5);
      for (std::uint64_t hash = 0; hash < 6; ++hash) {
        const auto counts = shard_counts(rows, 7, is_shared, hash, servers, 5);
        EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), rows * 7);
        EXPECT_EQ(counts[1] + counts[4], 0u);
        for (std::size_t rank = 0; rank < counts.size(); ++rank) {
          EXPECT_EQ(counts[rank] % 7, 0u);
          EXPECT_LE(counts[rank], is_shared ? (rows + 2) / 3 * 7 : rows * 7);
          used[rank] += counts[rank] > 0 ? 1 : 0;
        }
      }
      const std::vector<std::size_t> by_hash{2, 0, 2, 2, 0};
      EXPECT_TRUE(is_shared || used == by_hash);
    }
  }
}

/// Against the formulas in double, over five steps of two keys.
TEST(StoreOptimizers, FollowTheirFormulas) {
  for (const char* name : {"sgd", "adam", "adamw"}) {
    const StoreOptimizer with{.name = name,
                              .lr = 0.05,
                              .momentum = 0.9,
                              .weight_decay = 0.01,
                              .beta1 = 0.8,
                              .beta2 = 0.9,
                              .epsilon = 1e-3,
                              .rescale = 0.5};
    const StoreUpdater update = make_updater(with);
    for (const double start : {1.0, -2.0}) {
      const std::string key = start > 0 ? "a" : "b";
      double w = start, v = 0, m = 0, s = 0;
      std::vector<float> floats{static_cast<float>(start)};
      for (int step = 1; step <= 5; ++step) {
        const double pushed = start * step, decay = 0.01 * w, rate = 1.0 / step;
        const double g = 0.5 * pushed + (with.name == "adamw" ? 0.0 : decay);
        v = 0.9 * v + g;
        m = 0.8 * m + 0.2 * g;
        s = 0.9 * s + 0.1 * g * g;
        const double adam =
            m / (1 - std::pow(0.8, step)) / (std::sqrt(s / (1 - std::pow(0.9, step))) + 1e-3);
        w -= 0.05 * rate * (with.name == "sgd" ? v : with.name == "adam" ? adam : adam + decay);
        update({key, 0, floats, std::vector<float>{static_cast<float>(pushed)}, rate});
        EXPECT_NEAR(floats[0], w, 5e-5) << name;  // |w| < 4, some 20 roundings of 2^-24 a step
      }
    }
  }
}

}  // namespace
}  // namespace kolo
