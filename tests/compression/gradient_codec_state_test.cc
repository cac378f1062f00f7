// Tests the order of steps, momentum, state that moves to other ranks, and absence of allocations.

#include <memory>

#include <gtest/gtest.h>

#include "comm/base/error.h"
#include "tests/compression/compressed_cases.h"
#include "tests/support/allocations.h"

namespace kolo::test {
namespace {

TEST_F(GradientCodecTest, StepsHaveAnOrder) {
  const SparseOptions options = options_of({2000}, 0.01);
  CompressedJob job({1}, options);
  EXPECT_THROW(job.codec(0).commit(), UsageError);
  EXPECT_THROW(job.codec(0).abort(), UsageError);
  ASSERT_TRUE(job.step(gradients_of(random_, options, 1, normal)));
  EXPECT_EQ(job.codec(0).step(), 1u);
}

// No rank's momentum is lost or counted twice. In dense steps, it is that of a dense optimizer.
TEST_F(GradientCodecTest, CorrectedMomentumOfDenseStepsIsTheOptimizers) {
  for (const std::vector<int>& nodes : {std::vector<int>{2}, {2, 2}}) {
    SparseOptions options = options_of({160}, 1.0);
    options.wire = DType::kFloat32;
    options.momentum = MomentumCorrection{.momentum = 0.5f};
    options.warm_up.dense_steps = 4;
    CompressedJob job(nodes, options);
    std::vector<double> velocity(160);
    for (int step = 0; step < 4; ++step) {
      const auto gradients = gradients_of(random_, options, job.size(), lattice);
      ASSERT_TRUE(job.step(gradients));
      for (std::size_t i = 0; i < velocity.size(); ++i) {
        double sum = 0;
        for (const Tensors& own : gradients) sum += double{own[0][i]};
        velocity[i] = 0.5 * velocity[i] + sum / job.size();
        ASSERT_EQ(double{job.rank(0).results()[0][i]}, velocity[i]) << "step " << step;
      }
    }
  }
}

TEST_F(GradientCodecTest, SavedStateGoesOnBitForBit) {
  for (const std::vector<int>& nodes : {std::vector<int>{3}, {2, 2}}) {
    for (SparseOptions options : all_ways_of_all_methods(options_of({900, 300}, 0.05))) {
      SCOPED_TRACE(text(options, nodes));
      options.momentum = MomentumCorrection{};
      options.warm_up = {.dense_steps = 1, .ramp = {0.25}, .steps_per_density = 2};
      CompressedJob whole(nodes, options);
      std::unique_ptr<CompressedJob> resumed;
      for (int step = 0; step < 6; ++step) {
        if (step == 3) {
          resumed = std::make_unique<CompressedJob>(nodes, options);
          for (int rank = 0; rank < whole.size(); ++rank) {
            resumed->codec(rank).load(feedback_state_from(to_bytes(whole.codec(rank).save())));
            resumed->codec(rank).set_step(whole.codec(rank).step());
          }
        }
        const auto gradients = gradients_of(random_, options, whole.size(), normal);
        ASSERT_TRUE(whole.step(gradients));
        if (!resumed) continue;
        ASSERT_TRUE(resumed->step(gradients));
        ASSERT_EQ(bits_of(resumed->rank(0).results()), bits_of(whole.rank(0).results()));
        ASSERT_EQ(residual_bits(*resumed), residual_bits(whole));
      }
      EXPECT_GT(whole.codec(0).residual_norm(0), 0.0);
    }
  }
}

// An owner's residuals of sums are for the elements that it owns; ranks of another job own others.
TEST_F(GradientCodecTest, SumsOfAnotherOwnerAreNotLoaded) {
  SparseOptions options = options_of({2000}, 0.05);
  options.method = &methods::int8;
  CompressedJob two({2}, options), three({3}, options);
  ASSERT_TRUE(two.step(gradients_of(random_, options, 2, normal)));
  const FeedbackState saved = two.codec(1).save();
  EXPECT_THROW(three.codec(1).load(saved), KoloError);
  EXPECT_THROW(two.codec(0).check_state(saved), KoloError);
  EXPECT_EQ(three.codec(1).residual_norm(0), 0.0);
  options.method = &methods::topk;
  CompressedJob top_k({2}, options);
  EXPECT_THROW(top_k.codec(1).load(saved), KoloError);
}

// On other ranks and nodes, the sum of all residuals is exactly the same.
TEST_F(GradientCodecTest, ARemappedStateIsWorthAsMuch) {
  const auto methods = exact_methods();
  for (int round = 0; round < 24; ++round) {
    SparseOptions options =
        any_options(random_, methods[static_cast<std::size_t>(round) % methods.size()]);
    const std::vector<int> before = any_nodes(random_), after = any_nodes(random_);
    if (round % 2 == 0) options.momentum = MomentumCorrection{.momentum = 0.5f};
    SCOPED_TRACE("round " + std::to_string(round) + ": " + text(options, before) + " to " +
                 shape_text(after));
    CompressedJob old_job(before, options), new_job(after, options);
    for (int step = 0; step < 3; ++step) {
      ASSERT_TRUE(old_job.step(gradients_of(random_, options, old_job.size(), lattice)));
    }
    std::vector<FeedbackState> states;
    for (int rank = 0; rank < old_job.size(); ++rank) states.push_back(old_job.codec(rank).save());
    const double factor = static_cast<double>(new_job.size()) / old_job.size();
    for (int rank = 0; rank < new_job.size(); ++rank) {
      GradientCodec& codec = new_job.codec(rank);
      codec.load(remap(states, codec.share(factor)));
    }
    Sums expected = residual_sums(old_job, options);
    for (auto& sums : expected) {
      for (double& sum : sums) sum *= factor;
    }
    ASSERT_EQ(residual_sums(new_job, options), expected);
  }
}

TEST_F(GradientCodecTest, SteadyStateAllocatesNothing) {
  for (const SparseOptions& options : all_ways_of_all_methods(options_of({20000, 5000}, 0.02))) {
    SCOPED_TRACE(text(options, {1}));
    CompressedJob job({1}, options);
    auto gradients = gradients_of(random_, options, 1, normal);
    for (int step = 0; step < 8; ++step) {
      job.rank(0).start(gradients[0]);
      const AllocationCounter counter;
      while (job.rank(0).busy()) job.rank(0).poll();
      job.codec(0).commit();
      if (step >= 3) {
        EXPECT_EQ(counter.calls(), 0u) << "step " << step;
      }
    }
  }
}

// Also not when a later step keeps more pairs.
TEST_F(GradientCodecTest, SteadyStateOnADeviceAllocatesNothing) {
  SparseOptions options = options_of({20000, 5000}, 0.1);
  options.warm_up = {.ramp = {0.01}, .steps_per_density = 4};
  CompressedJob job({1}, options, Placement::kUser, 1, MemoryKind::kDevice);
  const auto gradients = gradients_of(random_, options, 1, normal);
  for (int step = 0; step < 6; ++step) {
    std::size_t allocations = 0;
    const auto count = [&](const auto& work) {
      const AllocationCounter counter;
      work();
      allocations += counter.calls();
    };
    job.rank(0).start(gradients[0]);
    while (job.rank(0).busy()) {
      count([&] { job.rank(0).poll(); });
      job.device(0).step();
    }
    count([&] { job.codec(0).commit(); });
    EXPECT_EQ(job.codec(0).stats().k, step < 4 ? 250u : 2500u);
    if (step >= 3) {
      EXPECT_EQ(allocations, 0u) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace kolo::test
