#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "compression/density_schedule.h"
#include "tests/compression/simulated_exchange.h"
#include "tests/compression/sparse_numbers.h"

/// Sparse exchanges of many shapes, all from a seed, and what their ranks hold.
namespace kolo::test {

inline constexpr std::uint32_t kExchangeSeed = 71;

struct ExchangeShape {
  SparsePlan plan;
  std::vector<std::size_t> ks;  ///< Per tensor.

  std::string text() const {
    std::string text = std::to_string(plan.ranks) + " ranks, rule " +
                       std::to_string(static_cast<int>(plan.rule)) + ", wire " +
                       std::string(to_string(plan.wire)) + ", tensors";
    for (std::size_t t = 0; t < ks.size(); ++t) {
      text += " " + std::to_string(ks[t]) + "/" + std::to_string(plan.tensor_counts[t]);
    }
    return text;
  }
};

inline ExchangeShape shape_of(int ranks, std::vector<std::size_t> counts, double density) {
  ExchangeShape shape{.plan = {.tensor_counts = std::move(counts), .ranks = ranks}, .ks = {}};
  for (const std::size_t count : shape.plan.tensor_counts) {
    shape.ks.push_back(pairs_to_keep(density, count));
    shape.plan.k += shape.ks.back();
  }
  return shape;
}

inline ExchangeShape random_shape(std::mt19937& random) {
  std::vector<std::size_t> counts(1 + random() % 4);
  for (std::size_t& count : counts) count = random() % 10 == 0 ? random() % 3 : random() % 3000;
  const int ranks = 1 + static_cast<int>(random() % 16);
  ExchangeShape shape = shape_of(ranks, counts, any_of(random, {0.01, 0.1, 0.5, 1.0}));
  shape.plan.rule = any_of(random, kRules);
  shape.plan.wire = any_of(random, kWires);
  return shape;
}

inline std::vector<std::uint32_t> residual_bits(SimulatedExchange& exchange) {
  std::vector<float> all;
  for (int rank = 0; rank < exchange.plan().ranks; ++rank) {
    for (std::size_t t = 0; t < exchange.plan().tensor_counts.size(); ++t) {
      const auto residual = exchange.feedback(rank).residual(t);
      all.insert(all.end(), residual.begin(), residual.end());
    }
  }
  return bits_of(all);
}

/// Residuals of all ranks, summed per element of the group; exact for lattice numbers.
inline std::vector<double> residual_sums(SimulatedExchange& exchange) {
  std::vector<double> sums(exchange.plan().count());
  for (int rank = 0; rank < exchange.plan().ranks; ++rank) {
    std::size_t element = 0;
    for (std::size_t t = 0; t < exchange.plan().tensor_counts.size(); ++t) {
      for (const float value : exchange.feedback(rank).residual(t)) sums[element++] += value;
    }
  }
  return sums;
}

inline std::vector<double> gradient_sums(const std::vector<Tensors>& gradients) {
  std::vector<double> sums;
  for (const Tensors& own : gradients) {
    std::size_t element = 0;
    for (const auto& tensor : own) {
      sums.resize(std::max(sums.size(), element + tensor.size()));
      for (const float value : tensor) sums[element++] += value;
    }
  }
  return sums;
}

class SparseExchangeTest : public testing::Test {
 protected:
  std::mt19937 random_{kExchangeSeed};
};

}  // namespace kolo::test
