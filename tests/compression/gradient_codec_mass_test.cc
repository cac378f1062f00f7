// Tests that residuals conserve sums exactly, and that a bad step changes nothing.

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "tests/compression/compressed_cases.h"

namespace kolo::test {
namespace {

// The steps are warm-up, ramp and steady state, and a flush at the end, which leaves no residual.
TEST_F(GradientCodecTest, MassIsConservedExactly) {
  const auto methods = exact_methods();
  for (int round = 0; round < 60; ++round) {
    const CompressionMethod* const method =
        methods[static_cast<std::size_t>(round) % methods.size()];
    SparseOptions options = any_options(random_, method);
    const std::vector<int> nodes = any_nodes(random_);
    options.warm_up = {.dense_steps = random_() % 2, .ramp = {0.5}, .steps_per_density = 2};
    SCOPED_TRACE("round " + std::to_string(round) + ": " + text(options, nodes));
    CompressedJob job(nodes, options, any_placement(random_), random_());
    Sums put_in = zeros(options), came_out = zeros(options);
    for (int step = 0; step < 8; ++step) {
      const bool is_last = step == 7;
      const auto gradients = gradients_of(random_, options, job.size(), lattice);
      for (int rank = 0; is_last && rank < job.size(); ++rank) job.codec(rank).flush_next();
      ASSERT_TRUE(job.step(gradients));
      for (const Tensors& own : gradients) add(put_in, own, 1);
      add(came_out, job.rank(0).results(), job.size());
      for (int rank = 1; rank < job.size(); ++rank) {
        ASSERT_EQ(bits_of(job.rank(rank).results()), bits_of(job.rank(0).results()));
      }
      const Sums left = residual_sums(job, options);
      for (std::size_t t = 0; t < left.size(); ++t) {
        for (std::size_t i = 0; i < left[t].size(); ++i) {
          ASSERT_EQ(came_out[t][i] + left[t][i], put_in[t][i]) << "step " << step << ", " << i;
          if (is_last) {
            ASSERT_EQ(left[t][i], 0.0);
          }
        }
      }
    }
  }
}

TEST_F(GradientCodecTest, WithoutFeedbackNothingIsKept) {
  for (const bool feedback : {true, false}) {
    for (SparseOptions options : all_ways_of_all_methods(options_of({2000}, 0.01))) {
      options.feedback = feedback;
      CompressedJob job({2}, options);
      ASSERT_TRUE(job.step(gradients_of(random_, options, 2, normal)));
      EXPECT_EQ(job.codec(0).residual_norm(0) > 0.0, feedback) << text(options, {2});
      if (!feedback) {
        EXPECT_EQ(residual_sums(job, options), zeros(options)) << text(options, {2});
      }
    }
  }
}

// With one bad number on any rank, no bit of any state changes on any rank, and all ranks detect
// it.
TEST_F(GradientCodecTest, ABadNumberOnOneRankSkipsTheStepOnAll) {
  const auto methods = coded_methods();
  for (int round = 0; round < 24; ++round) {
    SparseOptions options =
        any_options(random_, methods[static_cast<std::size_t>(round) % methods.size()]);
    const std::vector<int> nodes = any_nodes(random_);
    if (round % 3 == 0) options.momentum = MomentumCorrection{};
    options.warm_up.dense_steps = round % 4 == 0 ? 2 : 0;
    SCOPED_TRACE("round " + std::to_string(round) + ": " + text(options, nodes));
    CompressedJob job(nodes, options, any_placement(random_), random_());
    ASSERT_TRUE(job.step(gradients_of(random_, options, job.size(), normal)));
    const auto before = residual_bits(job);
    auto gradients = gradients_of(random_, options, job.size(), normal);
    auto& tensor = gradients[random_() % gradients.size()][random_() % options.tensors.size()];
    tensor[random_() % tensor.size()] = bad_number(round);
    EXPECT_FALSE(job.step(gradients));
    ASSERT_EQ(residual_bits(job), before);
    for (int rank = 0; rank < job.size(); ++rank) {
      const Tensors& results = job.rank(rank).results();
      EXPECT_TRUE(std::ranges::any_of(results, [](const auto& values) {
        return std::ranges::any_of(values, [](float value) { return !std::isfinite(value); });
      }));
      EXPECT_EQ(job.codec(rank).stats().skipped, 1u);
    }
    EXPECT_TRUE(job.step(gradients_of(random_, options, job.size(), normal)));
  }
}

TEST_F(GradientCodecTest, ASumThatOverflowsSkipsTheStep) {
  for (const std::vector<int>& nodes : {std::vector<int>{2}, {1, 1}, {2, 2}}) {
    for (const SparseOptions& options : all_ways_of_all_methods(options_of({500}, 0.1))) {
      SCOPED_TRACE(text(options, nodes));
      CompressedJob job(nodes, options);
      auto gradients = gradients_of(random_, options, job.size(), normal);
      const auto before = residual_bits(job);
      for (Tensors& own : gradients) std::ranges::fill(own[0], 3e38f);
      // 2-bit codes and their sums are finite. On two nodes of two ranks, the nodes' sums overflow.
      const bool is_finite = options.method->takes_threshold && job.size() == 2;
      EXPECT_EQ(job.step(gradients), is_finite);
      if (!is_finite) {
        EXPECT_EQ(residual_bits(job), before);
      }
    }
  }
}

}  // namespace
}  // namespace kolo::test
