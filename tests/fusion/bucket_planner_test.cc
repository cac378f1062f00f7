#include "fusion/bucket_planner.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "comm/base/error.h"
#include "fusion/wire_packer.h"

namespace kolo {
namespace {

/// Returns the gradients in the order of the plan's buckets.
std::vector<std::size_t> order_of(const Plan& plan) {
  std::vector<std::size_t> order;
  for (const PlannedBucket& bucket : plan.buckets) {
    for (const PlannedSegment& segment : bucket.segments) order.push_back(segment.gradient);
  }
  return order;
}

std::vector<std::size_t> last_registered_first(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

class Model {
 public:
  explicit Model(unsigned seed) : random_(seed) {
    for (std::size_t i = 0, n = random_() % 40 + 1; i < n; ++i) {
      const DType dtype = kNumberDTypes[random_() % std::size(kNumberDTypes)];
      const std::size_t count = random_() % 6 == 0 ? 0 : random_() % 300;
      gradients_.push_back({.name = std::to_string(i),
                            .shape = {count},
                            .dtype = random_() % 3 == 0 ? dtype : DType::kFloat32,
                            .data = random_() % 4 == 0 ? &memory_ : nullptr});
    }
    if (random_() % 3 == 0) options_.gradients.wire_dtype = DType::kBFloat16;
    if (random_() % 3 == 0) options_.gradients.wire_dtype = DType::kFloat16;
    options_.gradients.op = ReduceOp::kSum;
    const std::size_t limits[] = {0, 64, 100, 1000, 4096, std::size_t{1} << 30};
    options_.fusion_bytes = limits[random_() % std::size(limits)];
    if (random_() % 2 == 0) {
      options_.order = last_registered_first(gradients_.size());
      std::shuffle(options_.order.begin(), options_.order.end(), random_);
    }
  }

  const std::vector<GradientSpec>& gradients() const { return gradients_; }
  const PlannerOptions& options() const { return options_; }

 private:
  std::mt19937 random_;
  int memory_ = 0;
  std::vector<GradientSpec> gradients_;
  PlannerOptions options_;
};

std::size_t aligned(std::size_t count, DType dtype) {
  const std::size_t unit = kWireAlignment / size_of(dtype);
  return (count + unit - 1) / unit * unit;
}

Placement placement_alone(const GradientSpec& gradient, DType bucket) {
  if (gradient.dtype != bucket) return Placement::kStaged;
  return gradient.data == nullptr ? Placement::kInPlace : Placement::kUser;
}

TEST(PlanBuckets, PlacesEachGradientOnceAlignedWithinTheLimitAndGreedily) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Model model(seed);
    const auto& gradients = model.gradients();
    const PlannerOptions& options = model.options();
    const Plan plan = plan_buckets(gradients, options);

    const auto order =
        options.order.empty() ? last_registered_first(gradients.size()) : options.order;
    std::vector<std::size_t> turn(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) turn[order[i]] = i;
    const auto turns_of = [&](const PlannedBucket& bucket) {
      std::vector<std::size_t> turns;
      for (const PlannedSegment& segment : bucket.segments) turns.push_back(turn[segment.gradient]);
      return turns;
    };
    ASSERT_TRUE(std::ranges::is_permutation(order_of(plan), order));
    ASSERT_EQ(plan.bucket_of.size(), gradients.size());
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
      const auto& [layout, segments] = plan.buckets[b];
      ASSERT_FALSE(segments.empty());
      ASSERT_EQ(layout.op, options.gradients.op);
      std::size_t end = 0;
      std::set<Placement> placements;
      for (const PlannedSegment& segment : segments) {
        const GradientSpec& gradient = gradients[segment.gradient];
        ASSERT_EQ(plan.bucket_of[segment.gradient], b);
        ASSERT_EQ(segment.count, gradient.count());
        ASSERT_EQ(segment.offset, aligned(end, layout.dtype));
        ASSERT_EQ(layout.dtype, bucket_dtype(gradient, options.gradients));
        placements.insert(placement_alone(gradient, layout.dtype));
        end = segment.offset + segment.count + report_count(layout);
      }
      ASSERT_EQ(layout.count, end);
      // A bucket has all gradients in place, or none. One gradient that is cast makes all of them
      // staged. A cast to 16 bits applies to all or none.
      ASSERT_TRUE(!is_16bit_float(layout.dtype) || placements.size() == 1);
      ASSERT_TRUE(placements.size() == 1 || !placements.contains(Placement::kInPlace));
      ASSERT_EQ(layout.placement,
                placements.contains(Placement::kStaged) ? Placement::kStaged : *placements.begin());
      if (segments.size() > 1) {
        ASSERT_LE(end * size_of(layout.dtype), options.fusion_bytes);
      }

      // Within each bucket, and from bucket to bucket, gradients that are ready first come first.
      ASSERT_TRUE(std::ranges::is_sorted(turns_of(plan.buckets[b])));
      if (b + 1 == plan.buckets.size()) continue;
      ASSERT_LT(turns_of(plan.buckets[b]).back(), turns_of(plan.buckets[b + 1]).back());

      // The next bucket of this kind was begun because its first gradient did not fit here.
      const auto kind_of = [](const BucketLayout& of) {
        const bool is_apart = of.placement == Placement::kUser && is_16bit_float(of.dtype);
        return std::pair(of.dtype, is_apart ? 2 : of.placement == Placement::kInPlace ? 1 : 0);
      };
      const auto next =
          std::find_if(plan.buckets.begin() + static_cast<std::ptrdiff_t>(b) + 1,
                       plan.buckets.end(), [&](const PlannedBucket& other) {
                         return kind_of(other.layout) == kind_of(plan.buckets[b].layout);
                       });
      if (next == plan.buckets.end()) continue;
      const std::size_t fused =
          aligned(end, layout.dtype) + next->segments[0].count + report_count(layout);
      ASSERT_GT(fused * size_of(layout.dtype), options.fusion_bytes);
    }
  }
}

// float32 biases between matrices that are sent in 16 bits make two buckets, not one per tensor.
TEST(PlanBuckets, KindsThatAlternateDoNotCutEachOther) {
  std::vector<GradientSpec> gradients;
  for (int layer = 0; layer < 20; ++layer) {
    gradients.push_back({.name = "bias " + std::to_string(layer), .shape = {16}});
    gradients.push_back({.name = "matrix " + std::to_string(layer),
                         .shape = {16, 16},
                         .wire_dtype = DType::kFloat16});
  }
  const Plan plan = plan_buckets(gradients, {.gradients = {}, .fusion_bytes = 1 << 20});
  ASSERT_EQ(plan.buckets.size(), 2u);
  // The matrix of the first layer is ready last but one.
  EXPECT_EQ(plan.buckets[0].layout.dtype, DType::kFloat16);
  EXPECT_EQ(plan.buckets[1].layout.dtype, DType::kFloat32);
  EXPECT_EQ(plan.bucket_of[0], 1u);
  EXPECT_EQ(plan.bucket_of[1], 0u);
}

TEST(PlanBuckets, IsTheSameOnRanksWithOtherAddresses) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Model model(seed), twin(seed);
    const Plan a = plan_buckets(model.gradients(), model.options());
    const Plan b = plan_buckets(twin.gradients(), twin.options());
    EXPECT_EQ(a.bucket_of, b.bucket_of);
    EXPECT_EQ(order_of(a), order_of(b));
  }
}

TEST(PlaceInArena, GivesEachGradientOnePlaceWhereverBucketsEnd) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Model model(seed);
    PlannerOptions options = model.options();
    const ArenaPlaces places = place_in_arena(model.gradients(), options);
    for (const std::size_t fusion_bytes :
         {std::size_t{0}, std::size_t{500}, std::size_t{1} << 20}) {
      options.fusion_bytes = fusion_bytes;
      std::vector<std::pair<std::size_t, std::size_t>> extents;  // of buckets, in bytes
      for (const PlannedBucket& bucket : plan_buckets(model.gradients(), options).buckets) {
        for (const PlannedSegment& segment : bucket.segments) {
          ASSERT_EQ(bucket.layout.placement == Placement::kInPlace,
                    places.offset_of[segment.gradient].has_value());
        }
        if (bucket.layout.placement != Placement::kInPlace) continue;
        const std::size_t begin = places.offset_of[bucket.segments[0].gradient].value();
        ASSERT_EQ(begin % kWireAlignment, 0u);
        for (const PlannedSegment& segment : bucket.segments) {
          ASSERT_EQ(places.offset_of[segment.gradient],
                    begin + segment.offset * size_of(bucket.layout.dtype));
        }
        extents.emplace_back(begin, begin + bucket.layout.count * size_of(bucket.layout.dtype));
      }
      std::ranges::sort(extents);
      std::size_t end = 0;
      for (const auto& [first, last] : extents) {
        ASSERT_GE(first, end);
        end = last;
      }
      ASSERT_LE(end, places.bytes);
    }
  }
}

TEST(PlanBuckets, AGradientsOwnWireCountsMoreThanThatOfItsSet) {
  const std::vector<GradientSpec> gradients = {
      {.name = "a", .shape = {8}, .wire_dtype = DType::kFloat16},
      {.name = "b", .shape = {8}, .wire_dtype = DType::kFloat16},
      {.name = "c", .shape = {8}},
      {.name = "d", .shape = {8}, .dtype = DType::kInt32, .wire_dtype = DType::kFloat16}};
  PlannerOptions options;
  options.fusion_bytes = std::size_t{1} << 20;
  options.gradients.wire_dtype = DType::kBFloat16;
  const Plan plan = plan_buckets(gradients, options);
  ASSERT_EQ(plan.buckets.size(), 3u);
  EXPECT_EQ(plan.buckets[0].layout.dtype, DType::kInt32);
  EXPECT_EQ(plan.buckets[1].layout.dtype, DType::kBFloat16);
  EXPECT_EQ(plan.buckets[2].layout.dtype, DType::kFloat16);
  EXPECT_EQ(plan.buckets[2].segments.size(), 2u);
}

TEST(PlanBuckets, LeavesRoomForLanesBehindEachGradient) {
  const std::vector<GradientSpec> gradients = {
      {.name = "a", .shape = {32}}, {.name = "b", .shape = {31}}, {.name = "c", .shape = {30}}};
  PlannerOptions options;
  options.fusion_bytes = 4096;
  options.gradients.wire_dtype = DType::kFloat16;
  options.order = {0, 1, 2};
  const Plan plan = plan_buckets(gradients, options);
  ASSERT_EQ(plan.buckets.size(), 1u);
  EXPECT_EQ(plan.buckets[0].segments[1].offset, 64u);
  EXPECT_EQ(plan.buckets[0].segments[2].offset, 128u);
  EXPECT_EQ(plan.buckets[0].layout.count, 160u);
}

TEST(PlanBuckets, RefusesAnOrderThatIsNone) {
  const std::vector<GradientSpec> gradients = {{.name = "a", .shape = {5}},
                                               {.name = "b", .shape = {1}}};
  for (const std::vector<std::size_t>& order :
       {std::vector<std::size_t>{0}, {0, 0}, {0, 2}, {0, 1, 1}}) {
    PlannerOptions options;
    options.order = order;
    EXPECT_THROW(plan_buckets(gradients, options), UsageError);
  }
}

// Returns a plan with buckets of 3, 1 and 2 gradients.
Plan plan_of_three() {
  Plan plan;
  plan.bucket_of = {0, 1, 0, 2, 0, 2};
  plan.buckets.resize(3);
  for (std::size_t gradient = 0; gradient < plan.bucket_of.size(); ++gradient) {
    plan.buckets[plan.bucket_of[gradient]].segments.push_back(
        {.gradient = gradient, .offset = 0, .count = 0});
  }
  return plan;
}

TEST(Readiness, TellsABucketWithItsLastGradientInAnyOrderInEveryIteration) {
  constexpr unsigned kSeed = 4;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  const Plan plan = plan_of_three();
  Readiness readiness(plan);
  std::vector<std::size_t> order(plan.bucket_of.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (int iteration = 0; iteration < 200; ++iteration) {
    std::shuffle(order.begin(), order.end(), random);
    std::vector<std::size_t> marked(plan.buckets.size());
    for (std::size_t gradient : order) {
      const std::size_t bucket = plan.bucket_of[gradient];
      ++marked[bucket];
      const auto ready = readiness.mark(gradient);
      ASSERT_EQ(ready.has_value(), marked[bucket] == plan.buckets[bucket].segments.size());
      if (ready) {
        ASSERT_EQ(*ready, bucket);
      }
    }
  }
}

// Buckets are independent: one may be in its next iteration while another has not begun.
TEST(Readiness, ABucketDoesNotWaitForOthers) {
  Readiness readiness(plan_of_three());
  EXPECT_EQ(readiness.mark(1), 1u);
  EXPECT_EQ(readiness.mark(1), 1u);
  EXPECT_EQ(readiness.mark(3), std::nullopt);
  EXPECT_EQ(readiness.mark(1), 1u);
  EXPECT_EQ(readiness.mark(5), 2u);
}

}  // namespace
}  // namespace kolo
