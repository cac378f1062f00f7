#include "comm/kernels/reduce_kernels.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "comm/base/half.h"
#include "comm/kernels/reference_kernels.h"
#include "tests/support/simd_targets.h"

namespace kolo {
namespace {

constexpr std::uint64_t kWireSeed = 20261121;
constexpr std::size_t kWireCounts[] = {0, 1, 15, 16, 33, 64, 127, 1009, 4097};
constexpr int kExponents[] = {kLeastWireExponent, -20, -1, 0, 1, 7, 38, kMostWireExponent};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kMost = std::numeric_limits<float>::max();

std::vector<std::pair<DType, int>> wires() {
  std::vector<std::pair<DType, int>> result{{DType::kBFloat16, 0}};
  for (const int exponent : kExponents) result.emplace_back(DType::kFloat16, exponent);
  return result;
}

/// Returns one third arbitrary bits; the others are near the wire dtype's limit or smallest values.
std::vector<float> random_values(std::mt19937_64& random, std::size_t count, int exponent) {
  std::uniform_real_distribution<float> near(0.999f, 1.001f);
  std::vector<float> values(count);
  for (float& value : values) {
    switch (random() % 4) {
      case 0:
        value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
        break;
      case 1:
        value = std::ldexp(65520.0f * near(random), -exponent);
        break;
      case 2:
        value = std::ldexp(near(random), -24 - exponent - static_cast<int>(random() % 3));
        break;
      default:
        value = std::ldexp(near(random), -exponent);
    }
    if (random() % 2 == 0) value = -value;
  }
  return values;
}

TEST(WireKernelsTest, AreTheReferenceOnEveryInstructionSet) {
  std::mt19937_64 random(kWireSeed);
  for (const std::int64_t target : test::simd_targets()) {
    const test::ScopedSimdTarget scoped(target);
    SCOPED_TRACE(testing::Message() << kernel_target() << ", seed " << kWireSeed);
    for (const auto& [wire, exponent] : wires()) {
      for (const std::size_t count : kWireCounts) {
        SCOPED_TRACE(testing::Message()
                     << to_string(wire) << " 2^" << exponent << ", " << count << " elements");
        const std::vector<float> values = random_values(random, count, exponent);
        std::vector<std::uint16_t> sent(count + 1, 0x1234), expected(count + 1, 0x1234);
        const std::size_t too_large =
            to_wire(wire, sent.data(), DType::kFloat32, values.data(), count, exponent);
        EXPECT_EQ(too_large, reference::to_wire(wire, expected.data(), DType::kFloat32,
                                                values.data(), count, exponent));
        ASSERT_EQ(sent, expected);
        for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
          std::vector<float> back(count + 1, 5.0f), expected_back(count + 1, 5.0f);
          const std::uint16_t largest =
              from_wire(DType::kFloat32, back.data(), wire, sent.data(), count, exponent, stores);
          EXPECT_EQ(largest, reference::from_wire(DType::kFloat32, expected_back.data(), wire,
                                                  sent.data(), count, exponent));
          ASSERT_EQ(std::memcmp(back.data(), expected_back.data(), back.size() * sizeof(float)), 0);
        }
      }
    }
  }
}

TEST(WireKernelsTest, OtherFloatsTravelAsTheirValuesDo) {
  std::mt19937_64 random(kWireSeed);
  const std::vector<float> values = random_values(random, 333, 3);
  std::vector<Float16> halves;
  std::vector<BFloat16> brains;
  std::vector<double> doubles;
  for (const float value : values) {
    halves.push_back(to_float16(value));
    brains.push_back(to_bfloat16(value));
    doubles.push_back(value);
  }
  const auto as_floats = [](const auto& narrow) {
    std::vector<float> wide;
    for (const auto value : narrow) wide.push_back(to_float(value));
    return wide;
  };
  const auto expect_like = [](DType dtype, const void* source, const std::vector<float>& floats) {
    for (const auto& [wire, exponent] : wires()) {
      std::vector<std::uint16_t> sent(floats.size()), expected(floats.size());
      const std::size_t too_large =
          to_wire(wire, sent.data(), dtype, source, floats.size(), exponent);
      EXPECT_EQ(too_large, to_wire(wire, expected.data(), DType::kFloat32, floats.data(),
                                   floats.size(), exponent));
      EXPECT_EQ(sent, expected) << to_string(dtype) << " " << exponent;
    }
  };
  expect_like(DType::kFloat16, halves.data(), as_floats(halves));
  expect_like(DType::kBFloat16, brains.data(), as_floats(brains));
  expect_like(DType::kFloat64, doubles.data(), values);
}

TEST(WireKernelsTest, WhatIsFiniteStaysFinite) {
  const std::vector<float> values = {65504.0f, 65519.996f, 65520.0f,  -65520.0f,
                                     1e30f,    -kMost,     kInfinity, -kInfinity,
                                     kNaN,     0.0f,       -0x1p-25f, 0x1.8p-25f};
  std::vector<Float16> sent(values.size());
  EXPECT_EQ(to_wire(DType::kFloat16, sent.data(), DType::kFloat32, values.data(), values.size(), 0),
            4u);
  const std::vector<std::uint16_t> expected = {0x7bff, 0x7bff, 0x7bff, 0xfbff, 0x7bff, 0xfbff,
                                               0x7c00, 0xfc00, 0x7e00, 0x0000, 0x8000, 0x0001};
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(sent[i].bits, expected[i]) << values[i];

  const std::vector<float> edges = {kMost, -kMost, std::bit_cast<float>(0x7f7f7fffu), kInfinity};
  std::vector<BFloat16> brains(edges.size());
  EXPECT_EQ(
      to_wire(DType::kBFloat16, brains.data(), DType::kFloat32, edges.data(), edges.size(), 0), 2u);
  EXPECT_EQ(brains[0].bits, 0x7f7f);
  EXPECT_EQ(brains[1].bits, 0xff7f);
  EXPECT_EQ(brains[2].bits, 0x7f7f);
  EXPECT_EQ(brains[3].bits, 0x7f80);
}

TEST(WireKernelsTest, ExponentsReachAllOfFloat32) {
  for (const float value : {kMost, 0x1p-149f}) {
    const int exponent = value > 1 ? kLeastWireExponent : kMostWireExponent;
    Float16 sent;
    EXPECT_EQ(to_wire(DType::kFloat16, &sent, DType::kFloat32, &value, 1, exponent),
              value > 1 ? 1u : 0u);  // the last half unit below 2^128
    float back = 0;
    from_wire(DType::kFloat32, &back, DType::kFloat16, &sent, 1, exponent);
    EXPECT_NEAR(back / value, 1.0f, 0x1p-11f);
  }
}

TEST(WireKernelsTest, LargestIsThatOfMagnitudesAndTellsWhatIsNotFinite) {
  std::vector<Float16> wire(100, to_float16(0.25f));
  std::vector<float> back(wire.size());
  const auto largest = [&] {
    return from_wire(DType::kFloat32, back.data(), DType::kFloat16, wire.data(), wire.size(), 0);
  };
  wire[37] = to_float16(-3.0f);
  EXPECT_EQ(largest(), to_float16(3.0f).bits);
  wire[99] = {0xfc00};
  EXPECT_EQ(largest(), 0x7c00);
  wire[5] = {0x7e00};
  EXPECT_GT(largest(), 0x7c00);
  EXPECT_TRUE(std::isnan(back[5]));
  EXPECT_EQ(back[99], -kInfinity);
}

}  // namespace
}  // namespace kolo
