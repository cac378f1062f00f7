#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/compression/sparse_numbers.h"

/// Inputs of top-k, and its results computed by sorting all elements.
namespace kolo::test {

struct TopKCase {
  std::string name;
  std::vector<float> residual, gradient;
};

struct TopKAnswer {
  std::vector<float> sums;
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
};

/// Compares bit for bit.
inline void expect_equal(const TopKAnswer& actual, const TopKAnswer& expected) {
  ASSERT_EQ(actual.indices, expected.indices);
  ASSERT_EQ(bits_of(actual.values), bits_of(expected.values));
  ASSERT_EQ(bits_of(actual.sums), bits_of(expected.sums));
}

/// Returns the largest sums of residual and scaled gradient, by a stable sort of all elements:
/// larger magnitudes first, NaN before all.
inline TopKAnswer top_k_by_sorting(const TopKCase& input, float scale, std::size_t k) {
  TopKAnswer answer{.sums = input.residual, .indices = {}, .values = {}};
  std::vector<float> scaled = input.gradient;  // in memory, so that each product is rounded
  for (float& value : scaled) value *= scale;
  for (std::size_t i = 0; i < answer.sums.size(); ++i) {
    float& sum = answer.sums[i];
    sum += scaled[i];
    if (std::isnan(sum)) sum = std::numeric_limits<float>::quiet_NaN();
  }
  const auto magnitude = [&](std::uint32_t i) {
    const float sum = answer.sums[i];
    return std::pair(std::isnan(sum), std::isnan(sum) ? 0.0f : std::fabs(sum));
  };
  std::vector<std::uint32_t> order(answer.sums.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return magnitude(a) > magnitude(b); });
  order.resize(k);
  std::ranges::sort(order);
  answer.indices = order;
  for (const std::uint32_t i : order) answer.values.push_back(answer.sums[i]);
  return answer;
}

/// Returns inputs of `count` elements with numbers of every kind.
inline std::vector<TopKCase> top_k_cases(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto any_bits = [&] { return static_cast<std::uint32_t>(random()); };
  const std::vector<float> zeros(count, 0.0f);
  const auto filled = [&](auto&& make) {
    std::vector<float> values(count);
    std::generate(values.begin(), values.end(), make);
    return values;
  };
  const auto normal = [&] { return std::normal_distribution<float>()(random); };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> specials = {0.0f,
                                       -0.0f,
                                       1.0f,
                                       -1.0f,
                                       kInfinity,
                                       -kInfinity,
                                       kNaN,
                                       -kNaN,
                                       1e-42f,
                                       -1e-42f,
                                       std::numeric_limits<float>::max()};
  std::vector<float> one_side = filled(normal);
  for (std::size_t i = 0; i < count / 2; ++i) one_side[i] *= 1e-3f;
  return {{"normal", filled(normal), filled(normal)},
          {"all equal", zeros, std::vector<float>(count, -2.5f)},
          {"zeros of both signs", zeros, filled([&] { return random() % 2 ? 0.0f : -0.0f; })},
          {"few values", zeros, filled([&] { return static_cast<float>(any_bits() % 5) - 2; })},
          {"denormal", zeros, filled([&] { return std::bit_cast<float>(any_bits() % 0x800000u); })},
          {"any bits", zeros, filled([&] { return std::bit_cast<float>(any_bits()); })},
          {"special", filled([&] { return specials[random() % specials.size()]; }),
           filled([&] { return specials[random() % specials.size()]; })},
          {"one last bit apart", zeros,
           filled([&] { return std::bit_cast<float>(0x3f800000u + any_bits() % 4); })},
          {"all in one half", std::move(one_side), zeros}};
}

inline std::vector<std::size_t> top_k_ks(std::size_t count) {
  std::vector<std::size_t> ks = {0, 1, 2, count / 100, count / 3, count - 1, count};
  std::erase_if(ks, [&](std::size_t k) { return k > count; });
  return ks;
}

}  // namespace kolo::test
