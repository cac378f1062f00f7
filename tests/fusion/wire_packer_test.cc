#include "fusion/wire_packer.h"

#include <cmath>
#include <random>

#include <gmock/gmock.h>

#include "comm/base/error.h"
#include "comm/base/half.h"
#include "comm/kernels/reduce_kernels.h"

namespace kolo {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr BucketLayout kWire{.count = 128,
                             .dtype = DType::kFloat16,
                             .op = ReduceOp::kAverage,
                             .placement = Placement::kStaged};

TEST(WireScaleTest, LeavesRoomAboveTheResult) {
  WireScale scale(2);
  EXPECT_EQ(scale.exponent(), 0);
  scale.step({.largest = to_float16(0x1p-10f).bits});
  // The exponent is 2^15 minus six for growth and one for two ranks.
  EXPECT_EQ(scale.exponent(), 18);
  scale.step({.largest = to_float16(0x1p8f).bits});
  EXPECT_EQ(scale.exponent(), 18) << "the same magnitude, as it came";
}

TEST(WireScaleTest, FallsAtOnceAndRisesByOne) {
  WireScale scale(1);
  scale.step({.largest = to_float16(0x1p9f).bits});
  EXPECT_EQ(scale.exponent(), 0);
  scale.step({.largest = to_float16(0x1p14f).bits});
  EXPECT_EQ(scale.exponent(), -5);
  scale.step({.largest = to_float16(0x1p-14f).bits});
  EXPECT_EQ(scale.exponent(), -4);
  scale.step({.largest = to_float16(0x1p-14f).bits});
  EXPECT_EQ(scale.exponent(), -3);
}

TEST(WireScaleTest, StaysWhereItLearnsNothing) {
  WireScale scale(4);
  scale.step({.largest = to_float16(1.0f).bits});
  const int before = scale.exponent();
  for (const std::uint16_t bits : std::initializer_list<std::uint16_t>{0x0000, 0x7c00, 0x7e00}) {
    scale.step({.largest = bits});
  }
  EXPECT_EQ(scale.exponent(), before);
}

TEST(WireScaleTest, GivesMoreRoomForGoodWhereValuesWereTooLarge) {
  WireScale scale(1);
  scale.step({.largest = to_float16(0x1p9f).bits});
  scale.step({.largest = to_float16(0x1p9f).bits, .was_too_large = true});
  EXPECT_EQ(scale.exponent(), 0) << "the first step knew no better";
  scale.step({.largest = to_float16(0x1p9f).bits, .was_too_large = true});
  EXPECT_EQ(scale.exponent(), -3);
  scale.step({.largest = to_float16(0x1p6f).bits});
  EXPECT_EQ(scale.exponent(), -3) << "the room stays";
  scale.step({.was_too_large = true});
  EXPECT_EQ(scale.exponent(), -6) << "contributions that cancel are too large all the same";
}

TEST(WireScaleTest, FallsFarFromTheEndOfTheRangeAndThenKnows) {
  WireScale scale(1);
  scale.step({.largest = kLargestFloat16.bits});
  EXPECT_EQ(scale.exponent(), -24);
  scale.step({.largest = to_float16(0x1p-3f).bits, .was_too_large = true});
  EXPECT_EQ(scale.exponent(), -12);
}

TEST(WireScaleTest, RisesWhereAllBecameZero) {
  WireScale scale(8);
  scale.step({.was_too_small = true});
  EXPECT_EQ(scale.exponent(), 24);
  scale.step({.was_too_small = true});
  EXPECT_EQ(scale.exponent(), 48);
  scale.step({.was_too_large = true, .was_too_small = true});
  EXPECT_EQ(scale.exponent(), 45);
  scale.step({.largest = to_float16(1.0f).bits, .was_too_small = true});
  EXPECT_EQ(scale.exponent(), 51) << "the result tells more than the step before it";
}

TEST(WireScaleTest, StaysWithinWhatCastsTake) {
  WireScale scale(1);
  for (int i = 0; i < 400; ++i) scale.step({.largest = to_float16(0x1p-24f).bits});
  EXPECT_EQ(scale.exponent(), 125);
  for (int i = 0; i < 400; ++i) scale.step({.largest = kLargestFloat16.bits});
  EXPECT_EQ(scale.exponent(), -112);
}

/// `ranks` ranks with two tensors each, of 37 and 64 elements, and the sums of a schedule. Tensors
/// are in one bucket, or in one each.
class WireJob {
 public:
  static constexpr std::size_t kCounts[] = {37, 64};

  WireJob(int ranks, bool fused, const BucketLayout& layout = kWire) : layout_(layout) {
    for (int rank = 0; rank < ranks; ++rank) {
      tensors_.emplace_back();
      for (const std::size_t count : kCounts) tensors_.back().emplace_back(count);
    }
    const auto segment = [&](std::size_t rank, std::size_t t, std::size_t offset) {
      return Segment{.data = tensors_[rank][t].data(), .count = kCounts[t], .offset = offset};
    };
    for (std::size_t rank = 0; rank < tensors_.size(); ++rank) {
      const auto state = std::make_shared<WireState>(std::size(kCounts), ranks);
      states_.push_back(state);
      auto& packers = packers_.emplace_back();
      const auto add = [&](std::vector<Segment> segments, std::vector<std::size_t> tensors) {
        packers.push_back(std::make_unique<WirePacker>(layout_, std::move(segments),
                                                       std::move(tensors), state, "a bucket"));
      };
      if (fused) {
        add({segment(rank, 0, 0), segment(rank, 1, 64)}, {0, 1});
      } else {
        add({segment(rank, 1, 0)}, {1});
        add({segment(rank, 0, 0)}, {0});
      }
    }
  }

  std::vector<float>& tensor(std::size_t rank, std::size_t t) { return tensors_[rank][t]; }
  int exponent(std::size_t rank, std::size_t t) const {
    return states_[rank]->tensor(t).scale.exponent();
  }
  std::uint64_t too_large(std::size_t rank) const { return states_[rank]->too_large(); }

  /// Runs one step, in pieces of `piece` elements.
  void step(std::size_t piece) {
    const double scale = 1.0 / static_cast<double>(tensors_.size());
    for (std::size_t b = 0; b < packers_[0].size(); ++b) {
      constexpr std::size_t kElements = 192;
      std::vector<std::vector<std::uint16_t>> buckets;
      std::vector<const void*> sources;
      for (auto& packers : packers_) {
        auto& bucket = buckets.emplace_back(kElements);
        for (std::size_t i = 0; i < kElements; i += piece) {
          packers[b]->pack(i, std::min(piece, kElements - i), &bucket[i], Stores::kCached);
        }
      }
      for (const auto& bucket : buckets) sources.push_back(bucket.data());
      std::vector<std::uint16_t> result(kElements);
      reduce(layout_.dtype, layout_.op, result.data(), sources, kElements, scale,
             Overflow::kLargest);
      for (auto& packers : packers_) {
        for (std::size_t i = 0; i < kElements; i += piece) {
          packers[b]->unpack(i, std::min(piece, kElements - i), &result[i], Stores::kCached);
        }
      }
    }
  }

 private:
  BucketLayout layout_;
  std::vector<std::vector<std::vector<float>>> tensors_;
  std::vector<std::shared_ptr<WireState>> states_;
  std::vector<std::vector<std::unique_ptr<WirePacker>>> packers_;
};

void fill(WireJob& job, int ranks, std::mt19937_64& random, float magnitude) {
  std::normal_distribution<float> normal;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
    for (const std::size_t t : {0u, 1u}) {
      for (float& value : job.tensor(rank, t)) value = magnitude * normal(random);
    }
  }
}

// Nobody reports, so nobody needs to know which values became zero.
TEST(WirePackerTest, LooksAtItsOutputOnlyForAReport) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    BucketLayout layout = kWire;
    layout.dtype = dtype;
    std::vector<float> values(37, 1.0F);
    const auto state = std::make_shared<WireState>(1, 2);
    WirePacker packer(layout, {{.data = values.data(), .count = values.size()}}, {0}, state, "a");
    std::vector<std::uint16_t> bucket(64);
    packer.pack(0, bucket.size(), bucket.data(), Stores::kCached);
    EXPECT_EQ(state->tensor(0).sends_values, dtype == DType::kFloat16);
    EXPECT_EQ(state->tensor(0).has_values, dtype == DType::kFloat16);
  }
}

// The second tensor is 2^20 times the first one. Gradients of any magnitude get the precision of
// normal numbers after a few steps. Sizes of buckets and pieces change no bit.
TEST(WirePackerTest, KeepsPrecisionAtAnyMagnitudeHoweverTensorsTravel) {
  constexpr int kRanks = 3;
  constexpr std::uint64_t kSeed = 7;
  for (const float magnitude : {1e-30f, 1e-12f, 1.0f, 1e9f, 1e25f}) {
    SCOPED_TRACE(testing::Message() << "magnitude " << magnitude << ", seed " << kSeed);
    WireJob fused(kRanks, true), alone(kRanks, false);
    constexpr int kSteps = 10;  // enough to get from 2^0 to any exponent
    for (int step = 0; step <= kSteps; ++step) {
      const std::size_t piece = std::initializer_list<std::size_t>{192, 17, 1}.begin()[step % 3];
      std::mt19937_64 random(kSeed), same(kSeed);
      fill(fused, kRanks, random, magnitude);
      fill(alone, kRanks, same, magnitude);
      std::vector<std::vector<double>> mean(2);
      for (const std::size_t t : {0u, 1u}) {
        mean[t].resize(WireJob::kCounts[t]);
        for (std::size_t rank = 0; rank < kRanks; ++rank) {
          for (std::size_t i = 0; i < mean[t].size(); ++i) {
            if (t == 1) fused.tensor(rank, t)[i] *= 0x1p20f, alone.tensor(rank, t)[i] *= 0x1p20f;
            mean[t][i] += double{fused.tensor(rank, t)[i]} / kRanks;
          }
        }
      }
      fused.step(piece);
      alone.step(192);
      for (const std::size_t t : {0u, 1u}) {
        ASSERT_EQ(fused.tensor(0, t), alone.tensor(0, t));
        ASSERT_EQ(fused.tensor(0, t), fused.tensor(2, t));
        ASSERT_EQ(fused.exponent(0, t), alone.exponent(1, t));
        if (step < kSteps) continue;
        const double unit = (t == 1 ? 0x1p20 : 1.0) * double{magnitude};
        for (std::size_t i = 0; i < mean[t].size(); ++i) {
          // Values are below 5 units; each contribution and the mean have errors of 2^-11.
          EXPECT_NEAR(fused.tensor(0, t)[i], mean[t][i], 2 * 5 * unit * 0x1p-11) << i;
        }
      }
    }
    EXPECT_EQ(alone.too_large(0) > 0, magnitude > 1e-2f) << "the second tensor's";
  }
}

TEST(WirePackerTest, WhatIsTooLargeIsCountedAndOthersMakeRoomToo) {
  WireJob job(2, true);
  const auto set = [&](std::size_t rank, float value) {
    for (float& each : job.tensor(rank, 0)) each = value;
  };
  // Contributions cancel, so no result shows them; only the element does.
  for (int step = 0; step < 8; ++step) {
    set(0, 1e6f);
    set(1, -1e6f);
    job.step(50);
    EXPECT_THAT(job.tensor(0, 0), testing::Each(0.0f));
    EXPECT_EQ(job.exponent(0, 0), job.exponent(1, 0));
    EXPECT_EQ(job.exponent(0, 1), 0) << "the other tensor is not concerned";
  }
  const std::uint64_t counted = job.too_large(0);
  EXPECT_GE(counted, 37u);
  EXPECT_LT(counted, 8 * 37u) << "there is room in the end";
  set(0, 1e6f);
  set(1, 1e6f);
  job.step(50);
  EXPECT_NEAR(job.tensor(0, 0)[0], 1e6f, 1e6f * 0x1p-11f);
  EXPECT_EQ(job.too_large(0), counted);
}

TEST(WirePackerTest, OnlyWhatIsNotFiniteIsNotFiniteInTheResult) {
  for (const DType wire : {DType::kFloat16, DType::kBFloat16}) {
    BucketLayout layout = kWire;
    layout.dtype = wire;
    WireJob job(2, true, layout);
    std::ranges::fill(job.tensor(0, 0), 1e38f);
    job.tensor(0, 0)[1] = kInfinity;
    job.tensor(1, 0)[2] = std::numeric_limits<float>::quiet_NaN();
    job.tensor(0, 0)[3] = std::numeric_limits<float>::max();
    job.tensor(1, 1)[4] = -kInfinity;
    const int before = job.exponent(0, 0);
    job.step(64);
    for (const std::size_t rank : {0u, 1u}) {
      for (std::size_t i = 0; i < 37; ++i) {
        EXPECT_EQ(std::isfinite(job.tensor(rank, 0)[i]), i != 1 && i != 2) << i;
      }
      EXPECT_EQ(job.tensor(rank, 0)[1], kInfinity);
      EXPECT_TRUE(std::isnan(job.tensor(rank, 0)[2]));
      EXPECT_EQ(job.tensor(rank, 1)[4], -kInfinity);
      EXPECT_EQ(job.exponent(rank, 0), before);
    }
    EXPECT_EQ(job.too_large(1), 0u);
    EXPECT_EQ(job.too_large(0), wire == DType::kFloat16 ? 36u : 1u);
  }
}

TEST(WirePackerTest, OnlySumsToFloat16HaveLanes) {
  EXPECT_EQ(report_count(kWire), 2u);
  BucketLayout layout = kWire;
  layout.dtype = DType::kBFloat16;
  EXPECT_EQ(report_count(layout), 0u);
  layout = kWire;
  layout.op = ReduceOp::kMax;
  EXPECT_EQ(report_count(layout), 0u);
  layout = kWire;
  layout.placement = Placement::kUser;
  EXPECT_EQ(report_count(layout), 0u);
  layout = kWire;
  layout.memory = MemoryKind::kDevice;
  EXPECT_EQ(report_count(layout), 0u);
}

TEST(WirePackerTest, HasNoPieces) {
  WirePacker packer(kWire, {}, {}, std::make_shared<WireState>(0, 1), "nothing");
  EXPECT_THROW(packer.piece(0, 1), UsageError);
}

}  // namespace
}  // namespace kolo
