#include "compression/payload.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/base/error.h"

namespace kolo {
namespace {

using testing::ElementsAre;

constexpr std::uint32_t kPayloadSeed = 41;
constexpr DType kPayloadWires[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

// Returns finite floats of every kind: any bits, normal numbers, subnormals, limits of wire dtypes.
std::vector<float> finite_values(std::mt19937& random, std::size_t count) {
  std::normal_distribution<float> normal;
  const float edges[] = {65504.0f,
                         65520.0f,
                         -65519.996f,
                         0x1p-24f,
                         -0x1p-25f,
                         0x1.8p-25f,
                         1e-45f,
                         0.0f,
                         std::numeric_limits<float>::max(),
                         std::numeric_limits<float>::lowest()};
  std::vector<float> values(count);
  for (float& value : values) {
    do {
      const auto bits = static_cast<std::uint32_t>(random());
      switch (random() % 4) {
        case 0:
          value = std::bit_cast<float>(bits);
          break;
        case 1:
          value = normal(random);
          break;
        case 2:
          value = std::bit_cast<float>(bits & 0x807fffffu);
          break;
        default:
          value = edges[bits % std::size(edges)];
      }
    } while (!std::isfinite(value));
  }
  return values;
}

float largest_of(const std::vector<float>& values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

std::vector<float> rounded(DType wire, int exponent, const std::vector<float>& values) {
  std::vector<float> result(values.size());
  round_to_wire(wire, exponent, values, result);
  return result;
}

void expect_exact_split(const std::vector<float>& values, const std::vector<float>& sent) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float rest = values[i] - sent[i];
    ASSERT_EQ(static_cast<double>(values[i]) - static_cast<double>(sent[i]),
              static_cast<double>(rest))
        << values[i] << ", seed " << kPayloadSeed;
    ASSERT_EQ(sent[i] + rest, values[i]) << "seed " << kPayloadSeed;
  }
}

// A sent value is zero or near the original, so their difference is exact in float64. Even rounds
// have numbers of all magnitudes, odd rounds of about one magnitude.
TEST(ValueCodecTest, WhatIsSentAndWhatIsLeftAddUpExactly) {
  std::mt19937 random(kPayloadSeed);
  std::normal_distribution<float> normal;
  for (const DType wire : kPayloadWires) {
    for (int round = 0; round < 40; ++round) {
      std::vector<float> values = finite_values(random, 5000);
      const int power = static_cast<int>(random() % 260) - 140;
      if (round % 2 == 1) {
        for (float& value : values) value = std::ldexp(normal(random), power);
      }
      const int exponent = fitting_exponent(wire, largest_of(values));
      expect_exact_split(values, rounded(wire, exponent, values));
    }
  }
}

TEST(ValueCodecTest, SplitsAreExactUpToTwiceTheLargestValue) {
  std::mt19937 random(kPayloadSeed);
  std::uniform_real_distribution<float> magnitude(-131008.0f, 131008.0f);
  std::vector<float> values(20000);
  for (float& value : values) value = magnitude(random);
  expect_exact_split(values, rounded(DType::kFloat16, 0, values));
}

TEST(ValueCodecTest, FittingExponentUsesTheRangeAtEveryMagnitude) {
  for (int power = -149; power <= 127; ++power) {
    for (const float fraction : {1.0f, 1.9990234f}) {
      const float largest = std::ldexp(fraction, power);
      const int exponent = fitting_exponent(DType::kFloat16, largest);
      const std::vector<float> sent = rounded(DType::kFloat16, exponent, {largest, -largest / 2});
      EXPECT_NEAR(sent[0], largest, largest * 0x1p-11f) << power;
      EXPECT_NEAR(sent[1], -largest / 2, largest * 0x1p-11f) << power;
    }
  }
  EXPECT_EQ(fitting_exponent(DType::kFloat16, 0.0f), 0);
  EXPECT_EQ(fitting_exponent(DType::kBFloat16, 3.0f), 0);
}

TEST(ValueCodecTest, SaturatesAndRoundsToNearestEven) {
  EXPECT_THAT(rounded(DType::kFloat16, 0, {65520, -1e30f, 2049, 2051, 0x1p-25f}),
              ElementsAre(65504, -65504, 2048, 2052, 0));
  EXPECT_THAT(rounded(DType::kFloat16, 3, {8190, 0x1p-27f}), ElementsAre(8188, 0x1p-27f));
  EXPECT_THAT(rounded(DType::kBFloat16, 0, {std::numeric_limits<float>::max(), 257, 259}),
              ElementsAre(0x1.fep127f, 256, 260));
}

TEST(ValueCodecTest, RefusesOtherWiresAndExponents) {
  std::vector<float> one = {1};
  EXPECT_THROW(round_to_wire(DType::kInt32, 0, one, one), UsageError);
  EXPECT_THROW(round_to_wire(DType::kBFloat16, 1, one, one), UsageError);
  EXPECT_THROW(round_to_wire(DType::kFloat16, 126, one, one), UsageError);
}

std::vector<std::uint32_t> ascending_indices(std::mt19937& random, std::size_t domain,
                                             std::size_t count) {
  std::vector<std::uint32_t> indices(count);
  for (auto& index : indices) {
    index = static_cast<std::uint32_t>(
        std::uniform_int_distribution<std::size_t>(0, domain - 1)(random));
  }
  std::ranges::sort(indices);
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  return indices;
}

TEST(IndexCodecTest, GivesBackEveryIndex) {
  std::mt19937 random(kPayloadSeed);
  for (const std::size_t domain :
       {std::size_t{1}, std::size_t{65536}, std::size_t{65537}, std::size_t{1000003},
        (std::size_t{1} << 24) + 5, std::size_t{1} << 32}) {
    auto indices = ascending_indices(random, domain, 3000);
    if (indices.back() != domain - 1) indices.push_back(static_cast<std::uint32_t>(domain - 1));
    for (const IndexCoding coding : {IndexCoding::kU32, IndexCoding::kU16Pages}) {
      std::vector<std::byte> bytes(index_bytes(coding, domain, indices.size()));
      encode_indices(coding, domain, indices, bytes);
      std::vector<std::uint32_t> decoded(indices.size());
      decode_indices(coding, domain, bytes, decoded);
      EXPECT_EQ(decoded, indices) << "domain " << domain << ", seed " << kPayloadSeed;
    }
  }
}

TEST(IndexCodecTest, FullAndEmptyPages) {
  std::vector<std::uint32_t> indices;
  for (std::uint32_t i = 65536; i < 131072; ++i) indices.push_back(i);
  std::vector<std::byte> bytes(index_bytes(IndexCoding::kU16Pages, 200000, indices.size()));
  encode_indices(IndexCoding::kU16Pages, 200000, indices, bytes);
  std::vector<std::uint32_t> decoded(indices.size());
  decode_indices(IndexCoding::kU16Pages, 200000, bytes, decoded);
  EXPECT_EQ(decoded, indices);
  EXPECT_EQ(smaller_coding(200000, 65536), IndexCoding::kU16Pages);
  EXPECT_EQ(smaller_coding(200000, 8), IndexCoding::kU32);
  EXPECT_EQ(smaller_coding(200000, 9), IndexCoding::kU16Pages);
}

TEST(IndexCodecTest, RefusesWhatIsNoEncoding) {
  const std::vector<std::uint32_t> indices = {3, 70000};
  std::vector<std::byte> bytes(index_bytes(IndexCoding::kU16Pages, 70001, 2));
  encode_indices(IndexCoding::kU16Pages, 70001, indices, bytes);
  std::vector<std::uint32_t> decoded(2);
  bytes[0] = std::byte{2};  // two in the first page, one in the second
  EXPECT_THROW(decode_indices(IndexCoding::kU16Pages, 70001, bytes, decoded), KoloError);
  bytes[0] = std::byte{0};
  EXPECT_THROW(decode_indices(IndexCoding::kU16Pages, 70001, bytes, decoded), KoloError);
  bytes[0] = std::byte{1};
  decode_indices(IndexCoding::kU16Pages, 70001, bytes, decoded);
  EXPECT_EQ(decoded, indices);
  EXPECT_THROW(decode_indices(IndexCoding::kU16Pages, 70000, bytes, decoded), KoloError);
  const std::vector<std::uint32_t> beyond = {3, 140000};
  EXPECT_THROW(encode_indices(IndexCoding::kU16Pages, 70001, beyond, bytes), UsageError);
}

struct Sample {
  PayloadPlan plan;
  std::vector<PayloadSegment> segments;
  Pairs pairs;
};

Sample sample(std::mt19937& random, DType wire, IndexCoding coding) {
  Sample result{.plan = {.wire = wire,
                         .coding = coding,
                         .domain = 1 + random() % 300000,
                         .segments = random() % 5,
                         .most_pairs = 0},
                .segments = {},
                .pairs = {}};
  if (result.plan.segments > 0) {
    result.pairs.indices = ascending_indices(random, result.plan.domain, random() % 900);
  }
  const std::size_t count = result.pairs.indices.size();
  result.pairs.values = finite_values(random, count);
  result.plan.most_pairs = count + random() % 50;
  std::size_t left = count;
  for (std::size_t s = 0; s < result.plan.segments; ++s) {
    const std::size_t pairs = s + 1 == result.plan.segments ? left : random() % (left + 1);
    const auto begin = result.pairs.values.begin() + static_cast<std::ptrdiff_t>(count - left);
    const std::vector<float> own(begin, begin + static_cast<std::ptrdiff_t>(pairs));
    const int exponent = fitting_exponent(wire, largest_of(own));
    result.segments.push_back({static_cast<std::uint32_t>(pairs), exponent});
    const std::vector<float> sent = rounded(wire, exponent, own);
    std::ranges::copy(sent, begin);
    left -= pairs;
  }
  return result;
}

TEST(PayloadTest, GivesBackEveryPair) {
  std::mt19937 random(kPayloadSeed);
  for (int round = 0; round < 300; ++round) {
    const DType wire = kPayloadWires[round % 3];
    const auto coding = round % 2 == 0 ? IndexCoding::kU32 : IndexCoding::kU16Pages;
    const Sample input = sample(random, wire, coding);
    SCOPED_TRACE("round " + std::to_string(round) + ", seed " + std::to_string(kPayloadSeed));
    std::vector<std::byte> bytes(input.plan.capacity());
    const std::size_t used = encode_payload(input.plan, input.segments, input.pairs, bytes);
    EXPECT_EQ(used, input.plan.bytes(input.pairs.size()));
    ASSERT_EQ(used_bytes(input.plan, bytes), used);
    Pairs decoded{.indices = {7}, .values = {7}};
    decode_payload(input.plan, std::span(bytes).first(used), decoded);
    ASSERT_EQ(decoded.indices, input.pairs.indices);
    for (std::size_t i = 0; i < decoded.size(); ++i) {
      ASSERT_EQ(decoded.values[i], input.pairs.values[i]);
    }
    EXPECT_THROW(decode_payload(input.plan, std::span(bytes).first(used - 1), decoded), KoloError);
  }
}

// A payload has 16 bytes for the header, 8 per tensor, and the pairs.
TEST(PayloadTest, TakesTheBytesOfTheFormula) {
  const PayloadPlan narrow{.wire = DType::kFloat16,
                           .coding = IndexCoding::kU16Pages,
                           .domain = 65537,
                           .segments = 3,
                           .most_pairs = 100};
  EXPECT_EQ(narrow.bytes(0), 16u + 24 + 8);
  EXPECT_EQ(narrow.bytes(10), 16u + 24 + 8 + 40);
  EXPECT_EQ(narrow.bytes(11), 16u + 24 + 8 + 44 + 2);
  const PayloadPlan wide{.wire = DType::kFloat32,
                         .coding = IndexCoding::kU32,
                         .domain = 65537,
                         .segments = 1,
                         .most_pairs = 100};
  EXPECT_EQ(wide.capacity(), 16u + 8 + 800);
}

TEST(PayloadTest, RefusesOtherShapes) {
  const PayloadPlan plan{.domain = 100, .segments = 2, .most_pairs = 2};
  std::vector<std::byte> bytes(plan.capacity());
  const Pairs pairs{.indices = {1, 2}, .values = {1, 2}};
  const std::vector<PayloadSegment> segments = {{1, 0}, {1, 0}};
  EXPECT_THROW(encode_payload(plan, std::span(segments).first(1), pairs, bytes), UsageError);
  EXPECT_THROW(encode_payload(plan, std::vector<PayloadSegment>{{1, 0}, {2, 0}}, pairs, bytes),
               UsageError);
  EXPECT_THROW(
      encode_payload(plan, segments, Pairs{.indices = {1, 2, 3}, .values = {1, 2, 3}}, bytes),
      UsageError);
  EXPECT_THROW(encode_payload(plan, segments, pairs, std::span(bytes).first(20)), UsageError);
  encode_payload(plan, segments, pairs, bytes);
  Pairs decoded;
  PayloadPlan other = plan;
  other.wire = DType::kFloat32;
  EXPECT_THROW(decode_payload(other, bytes, decoded), KoloError);
}

// Bytes other than those sent are refused, or decode to pairs that the plan allows.
TEST(PayloadTest, DamagedIsRefusedOrHoldsPairsOfItsPlan) {
  constexpr std::uint64_t kDamageSeed = 8;
  constexpr int kMutations = 30'000;
  SCOPED_TRACE("seed " + std::to_string(kDamageSeed));
  std::mt19937_64 random(kDamageSeed);
  int refused = 0, accepted = 0;
  Pairs decoded;
  for (int i = 0; i < kMutations; ++i) {
    const PayloadPlan plan{.wire = kPayloadWires[i % 3],
                           .coding = random() % 2 == 0 ? IndexCoding::kU32 : IndexCoding::kU16Pages,
                           .domain = 1 + random() % 200'000,
                           .segments = 2,
                           .most_pairs = 20};
    Pairs pairs;
    for (std::uint32_t index = 0; index < plan.domain && pairs.size() < 20; index += 10'007) {
      pairs.add(index, 1.5f);
    }
    const auto count = static_cast<std::uint32_t>(pairs.size());
    const std::vector<PayloadSegment> segments = {{count / 2, 0}, {count - count / 2, 0}};
    std::vector<std::byte> bytes(plan.capacity());
    bytes.resize(encode_payload(plan, segments, pairs, bytes));
    for (std::size_t left = 1 + random() % 3; left > 0; --left) {
      bytes[random() % bytes.size()] =
          random() % 4 == 0 ? std::byte{0xff} : static_cast<std::byte>(random());
    }
    // A copy of exactly this size lets AddressSanitizer detect reads beyond it.
    const std::vector<std::byte> sent(
        bytes.begin(),
        bytes.begin() + static_cast<std::ptrdiff_t>(random() % 8 == 0 ? random() % bytes.size()
                                                                      : bytes.size()));
    try {
      decode_payload(plan, sent, decoded);
      ++accepted;
      ASSERT_EQ(plan.bytes(decoded.size()), used_bytes(plan, sent)) << "mutation " << i;
      ASSERT_LE(decoded.size(), plan.most_pairs) << "mutation " << i;
      ASSERT_EQ(decoded.values.size(), decoded.size()) << "mutation " << i;
      ASSERT_THAT(decoded.indices, testing::Each(testing::Lt(plan.domain))) << "mutation " << i;
    } catch (const KoloError& e) {
      ++refused;
      ASSERT_EQ(e.error().code, ErrorCode::kInternal) << "mutation " << i;
    }
  }
  EXPECT_GT(accepted, kMutations / 100);
  EXPECT_GT(refused, kMutations / 10);
}

}  // namespace
}  // namespace kolo
