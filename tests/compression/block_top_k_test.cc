#include <algorithm>
#include <bit>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "comm/base/error.h"
#include "compression/block_payload.h"
#include "compression/block_plan.h"
#include "compression/error_feedback.h"
#include "compression/kernels/block_energy.h"
#include "tests/support/simd_targets.h"

namespace kolo {
namespace {

using testing::ElementsAre;

constexpr std::uint64_t kSeed = 20261122;
constexpr DType kWires[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

std::vector<float> normal_values(std::mt19937_64& random, std::size_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(BlockEnergyTest, IsTheReferenceOnEveryInstructionSet) {
  std::mt19937_64 random(kSeed);
  for (const std::int64_t target : test::simd_targets()) {
    const test::ScopedSimdTarget scoped(target);
    for (const std::size_t count :
         std::initializer_list<std::size_t>{0, 1, 63, 64, 65, 128, 256, 1000, 4096}) {
      SCOPED_TRACE(testing::Message()
                   << "target " << target << ", " << count << " elements, seed " << kSeed);
      std::vector<float> values = normal_values(random, count);
      const float energy = block_energy(values);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(energy),
                std::bit_cast<std::uint32_t>(reference::block_energy(values)));
      double exact = 0;
      for (const float value : values) exact += double{value} * double{value};
      EXPECT_NEAR(energy, exact, 1e-5 * exact);
    }
  }
}

TEST(BlockFoldTest, BlocksThatAreNotFiniteHaveNoScore) {
  ErrorFeedback feedback({{.name = "t", .count = 70}});
  std::vector<float> gradient(70, 1.0f);
  gradient[0] = 1e30f;  // Its square overflows, itself it does not.
  gradient[20] = std::numeric_limits<float>::infinity();
  gradient[69] = std::nanf("");
  std::vector<float> energies(5);
  feedback.fold_blocks(0, gradient, 2.0f, 16, energies);
  EXPECT_EQ(energies[0], std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(energies[1]));
  EXPECT_EQ(energies[2], 64.0f);
  EXPECT_EQ(energies[3], 64.0f);
  EXPECT_TRUE(std::isnan(energies[4]));
  EXPECT_EQ(feedback.sums(0)[3], 2.0f);
  feedback.abort(0);
  EXPECT_THROW(feedback.sums(0), UsageError);
  std::vector<float> few(4);
  EXPECT_THROW(feedback.fold_blocks(0, gradient, 1.0f, 16, few), UsageError);
}

TEST(ChooseBlocksTest, AreTheLargestAndOfEqualOnesTheFirst) {
  std::vector<std::uint32_t> keys, chosen;
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> scores = {1, 3, 0, 3, 2, 3, inf};
  choose_blocks(scores, 3, keys, chosen);
  EXPECT_THAT(chosen, ElementsAre(1, 3, 6));
  choose_blocks(scores, 0, keys, chosen);
  EXPECT_THAT(chosen, ElementsAre());
  choose_blocks(std::vector<float>(5), 2, keys, chosen);
  EXPECT_THAT(chosen, ElementsAre(0, 1));
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> some(1 + random() % 300);
    for (float& score : some) score = static_cast<float>(random() % 20);
    std::vector<std::uint32_t> order(some.size());
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::stable_sort(order, [&](auto a, auto b) { return some[a] > some[b]; });
    order.resize(1 + random() % some.size());
    std::ranges::sort(order);
    choose_blocks(some, order.size(), keys, chosen);
    ASSERT_EQ(chosen, order) << "round " << round << ", seed " << kSeed;
  }
}

TEST(BlockPlanTest, DealsValuesEvenly) {
  for (const int ranks : {1, 2, 3, 7, 64}) {
    const BlockPlan plan{
        .tensor_counts = {1000, 3, 0}, .block = 16, .density = 0.1, .ranks = ranks};
    EXPECT_EQ(plan.blocks(), 63u + 1);
    EXPECT_EQ(plan.most_blocks(), 7u + 1);
    EXPECT_EQ(plan.most_values(), 7u * 16 + 3);
    for (std::size_t values = 0; values < 200; ++values) {
      std::size_t end = 0;
      for (int owner = 0; owner < ranks; ++owner) {
        const Extent own = plan.dealt(owner, values);
        EXPECT_EQ(own.offset, end);
        EXPECT_LE(own.count, plan.dealt(owner, values + 1).count);
        end = own.end();
      }
      EXPECT_EQ(end, values);
    }
  }
}

TEST(BlockPayloadTest, GivesBackEveryValueAtItsExponent) {
  std::mt19937_64 random(kSeed);
  for (const DType wire : kWires) {
    const BlockPayloadPlan plan{.wire = wire, .most_blocks = 4, .most_values = 50};
    const int exponent = wire == DType::kFloat16 ? 9 : 0;
    std::vector<float> values(40);  // Of few bits, so that no wire rounds them.
    for (float& value : values) value = static_cast<float>(random() % 64) * 0x1p-12f;
    const std::vector<BlockValues> blocks = {
        {.values = std::span(values).first(16), .exponent = exponent},
        {.values = {}},
        {.values = std::span(values).last(24), .exponent = exponent + (exponent > 0 ? 1 : 0)}};
    std::vector<std::byte> bytes(plan.capacity());
    const std::size_t used = encode_blocks(plan, blocks, bytes);
    EXPECT_EQ(used, plan.bytes(3, 40));
    EXPECT_EQ(used, 16 + (wire == DType::kFloat16 ? 8 : 0) + 40 * size_of(wire));
    EXPECT_TRUE(blocks_are_finite(plan, bytes));
    std::vector<float> decoded(40);
    const std::vector<std::size_t> counts = {16, 0, 24};
    decode_blocks(plan, std::span(bytes).first(used), counts, decoded);
    EXPECT_EQ(decoded, values);
    std::vector<float> fewer(16);
    EXPECT_THROW(decode_blocks(plan, bytes, std::vector<std::size_t>{16}, fewer), KoloError);
    EXPECT_LT(encode_blocks_not_finite(plan, bytes), used);
    EXPECT_FALSE(blocks_are_finite(plan, bytes));
    EXPECT_THROW(decode_blocks(plan, bytes, counts, decoded), KoloError);
    EXPECT_THROW(encode_blocks(plan, std::vector<BlockValues>(5), bytes), UsageError);
    std::vector<std::byte> small(20);
    EXPECT_THROW(encode_blocks(plan, blocks, small), UsageError);
  }
}

TEST(BlockPayloadTest, DamageIsRefusedOrHoldsWhatIsPlanned) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  constexpr int kMutations = 20'000;
  const std::vector<float> values(20, 1.5f);
  const std::vector<std::size_t> counts = {12, 8};
  std::vector<float> decoded(20);
  int refused = 0;
  for (int i = 0; i < kMutations; ++i) {
    const BlockPayloadPlan plan{.wire = kWires[i % 3], .most_blocks = 3, .most_values = 30};
    std::vector<std::byte> bytes(plan.capacity());
    bytes.resize(encode_blocks(plan,
                               std::vector<BlockValues>{{.values = std::span(values).first(12)},
                                                        {.values = std::span(values).last(8)}},
                               bytes));
    bytes[random() % 24] = static_cast<std::byte>(random());
    // A copy of exactly this size, so that the address sanitizer sees a read beyond it.
    const std::vector<std::byte> sent(
        bytes.begin(),
        bytes.begin() + static_cast<std::ptrdiff_t>(random() % 8 == 0 ? random() % bytes.size()
                                                                      : bytes.size()));
    try {
      decode_blocks(plan, sent, counts, decoded);
    } catch (const KoloError& e) {
      ++refused;
      ASSERT_EQ(e.error().code, ErrorCode::kInternal) << "mutation " << i;
    }
  }
  EXPECT_GT(refused, kMutations / 10);
  EXPECT_LT(refused, kMutations);
}

TEST(BlockCommitTest, RunsLeaveResidualAndVelocity) {
  ErrorFeedback feedback({{.name = "t", .count = 8}}, MomentumCorrection{.momentum = 0.5f});
  const std::vector<float> gradient = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<float> energies(2);
  feedback.fold_blocks(0, gradient, 1.0f, 4, energies);
  EXPECT_THAT(energies, ElementsAre(30, 174));
  const std::vector<float> sent = {5, 6, 6.5f, 8}, kept = {0.25f};
  feedback.commit(0, std::vector<ValueRun>{{.first = 4, .values = sent}},
                  std::vector<ValueRun>{{.first = 5, .values = kept}});
  EXPECT_THAT(feedback.residual(0), ElementsAre(1, 2, 3, 4, 0, 0.25f, 0.5f, 0));
  EXPECT_THAT(feedback.save().tensors[0].velocity, ElementsAre(1, 2, 3, 4, 0, 0, 0, 0));
}

}  // namespace
}  // namespace kolo
