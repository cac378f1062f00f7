#include "compression/error_feedback.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/base/error.h"
#include "compression/density_schedule.h"

namespace kolo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint32_t kFeedbackSeed = 53;

// Small integers times 2^-6: all sums are exact.
std::vector<float> lattice(std::mt19937& random, std::size_t count) {
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(static_cast<int>(random() % 2001) - 1000) * 0x1p-6f;
  }
  return values;
}

std::vector<float> residual_of(const ErrorFeedback& feedback, std::size_t tensor) {
  const auto residual = feedback.residual(tensor);
  return {residual.begin(), residual.end()};
}

// I4 on one rank: what was sent in all steps and what is left is what went in.
TEST(ErrorFeedbackTest, NothingIsLostOverManySteps) {
  std::mt19937 random(kFeedbackSeed);
  ErrorFeedback feedback({{"a", 300}, {"b", 7}});
  std::vector<std::vector<float>> put_in = {std::vector<float>(300), std::vector<float>(7)};
  auto sent = put_in;
  for (int step = 0; step < 50; ++step) {
    for (std::size_t t = 0; t < 2; ++t) {
      const std::size_t count = put_in[t].size();
      const std::vector<float> gradient = lattice(random, count);
      for (std::size_t i = 0; i < count; ++i) put_in[t][i] += 0.5f * gradient[i];
      Pairs selected;
      EXPECT_TRUE(feedback.fold(t, gradient, 0.5f, pairs_to_keep(0.05, count), selected).finite);
      feedback.commit(t, selected);
      for (std::size_t j = 0; j < selected.size(); ++j) {
        sent[t][selected.indices[j]] += selected.values[j];
      }
    }
  }
  for (std::size_t t = 0; t < 2; ++t) {
    for (std::size_t i = 0; i < put_in[t].size(); ++i) {
      ASSERT_EQ(sent[t][i] + feedback.residual(t)[i], put_in[t][i]) << "seed " << kFeedbackSeed;
    }
  }
}

TEST(ErrorFeedbackTest, OnlyWhatBecamePartOfTheResultLeavesTheResidual) {
  ErrorFeedback feedback({{"a", 4}});
  Pairs selected;
  feedback.fold(0, std::vector<float>{1, -5, 3, 4}, 1.0f, 3, selected);
  EXPECT_THAT(selected.indices, ElementsAre(1, 2, 3));
  feedback.commit(0, {.indices = {1, 3}, .values = {-5.0f, 3.5f}});
  EXPECT_THAT(residual_of(feedback, 0), ElementsAre(1, 0, 3, 0.5f));
  EXPECT_DOUBLE_EQ(feedback.residual_norm(0), std::sqrt(1 + 9 + 0.25));
}

// I10, with the velocity too.
TEST(ErrorFeedbackTest, AnAbortedStepChangesNoBit) {
  std::mt19937 random(kFeedbackSeed);
  for (const bool corrected : {false, true}) {
    ErrorFeedback feedback({{"a", 1000}},
                           corrected ? std::optional(MomentumCorrection{}) : std::nullopt);
    ErrorFeedback undisturbed({{"a", 1000}},
                              corrected ? std::optional(MomentumCorrection{}) : std::nullopt);
    for (int step = 0; step < 10; ++step) {
      const std::vector<float> gradient = lattice(random, 1000);
      Pairs selected, expected;
      const FeedbackState before = feedback.save();
      std::vector<float> bad = gradient;
      bad[random() % 1000] = step % 2 == 0 ? std::numeric_limits<float>::infinity()
                                           : std::numeric_limits<float>::quiet_NaN();
      EXPECT_FALSE(feedback.fold(0, bad, 1.0f, 10, selected).finite) << "seed " << kFeedbackSeed;
      feedback.abort(0);
      ASSERT_EQ(feedback.save(), before);
      std::vector<float> sums(1000);
      EXPECT_FALSE(feedback.fold_dense(0, bad, 1.0f, sums)) << "seed " << kFeedbackSeed;
      feedback.abort(0);
      ASSERT_EQ(feedback.save(), before);

      feedback.fold(0, gradient, 1.0f, 10, selected);
      undisturbed.fold(0, gradient, 1.0f, 10, expected);
      ASSERT_EQ(selected, expected);
      feedback.commit(0, selected);
      undisturbed.commit(0, selected);
    }
  }
}

TEST(ErrorFeedbackTest, StepsBeginAndEndOnce) {
  ErrorFeedback feedback({{"a", 2}});
  const std::vector<float> gradient = {1, 2};
  Pairs selected;
  EXPECT_THROW(feedback.commit(0, {}), UsageError);
  EXPECT_THROW(feedback.fold(0, std::vector<float>{1}, 1.0f, 1, selected), UsageError);
  EXPECT_THROW(feedback.fold(0, gradient, 1.0f, 3, selected), UsageError);
  feedback.fold(0, gradient, 1.0f, 1, selected);
  EXPECT_THROW(feedback.fold(0, gradient, 1.0f, 1, selected), UsageError);
  EXPECT_THROW(feedback.save(), UsageError);
  feedback.abort(0);
  EXPECT_THROW(feedback.abort(0), UsageError);
}

// Momentum on the gradient's side, without masking and with everything sent, is the optimizer's.
TEST(MomentumCorrectionTest, DensityOneEqualsMomentumOfTheOptimizer) {
  std::mt19937 random(kFeedbackSeed);
  for (const bool nesterov : {false, true}) {
    for (const bool dense : {false, true}) {
      // Dense steps never mask; at density one masking would take all momentum away.
      ErrorFeedback feedback(
          {{"a", 50}},
          MomentumCorrection{.momentum = 0.5f, .nesterov = nesterov, .masking = dense});
      std::vector<float> velocity(50);
      for (int step = 0; step < 8; ++step) {
        const std::vector<float> gradient = lattice(random, 50);
        std::vector<float> update(50);
        if (dense) {
          feedback.fold_dense(0, gradient, 1.0f, update);
          feedback.commit(0, {});
        } else {
          Pairs selected;
          feedback.fold(0, gradient, 1.0f, 50, selected);
          feedback.commit(0, selected);
          update = selected.values;
        }
        for (std::size_t i = 0; i < 50; ++i) {
          float expected = 0;
          if (nesterov) {
            velocity[i] = 0.5f * (velocity[i] + gradient[i]);
            expected = velocity[i] + gradient[i];
          } else {
            expected = velocity[i] = 0.5f * velocity[i] + gradient[i];
          }
          ASSERT_EQ(update[i], expected) << "seed " << kFeedbackSeed << ", step " << step;
        }
      }
    }
  }
}

TEST(MomentumCorrectionTest, WhatWasSentLeavesTheVelocity) {
  ErrorFeedback feedback({{"a", 2}}, MomentumCorrection{.momentum = 0.5f});
  Pairs selected;
  feedback.fold(0, std::vector<float>{8, 2}, 1.0f, 1, selected);
  feedback.commit(0, selected);
  EXPECT_THAT(feedback.save().tensors[0].velocity, ElementsAre(0, 2));
  EXPECT_THAT(residual_of(feedback, 0), ElementsAre(0, 2));
  feedback.fold(0, std::vector<float>{0, 0}, 1.0f, 1, selected);
  EXPECT_THAT(selected.indices, ElementsAre(1));
  EXPECT_THAT(selected.values, ElementsAre(3));  // What was left, and half the velocity.
}

TEST(ErrorFeedbackTest, DenseStepsSendTheResidualToo) {
  ErrorFeedback feedback({{"a", 2}});
  Pairs selected;
  feedback.fold(0, std::vector<float>{8, 2}, 1.0f, 1, selected);
  feedback.commit(0, selected);
  std::vector<float> sums(2);
  EXPECT_TRUE(feedback.fold_dense(0, std::vector<float>{1, 1}, 2.0f, sums));
  feedback.commit(0, {});
  EXPECT_THAT(sums, ElementsAre(2, 4));
  EXPECT_THAT(residual_of(feedback, 0), ElementsAre(0, 0));
}

TEST(ErrorFeedbackTest, FlushingEmptiesTheResidual) {
  ErrorFeedback feedback({{"a", 2}});
  Pairs selected;
  feedback.fold(0, std::vector<float>{8, 2}, 1.0f, 1, selected);
  feedback.commit(0, selected);
  std::vector<float> flushed(2);
  feedback.flush(0, flushed);
  EXPECT_THAT(flushed, ElementsAre(0, 2));
  EXPECT_EQ(feedback.residual_norm(0), 0);
}

// I12: a run that goes on from a checkpoint gives the bits of one that was never interrupted.
TEST(FeedbackStateTest, LoadingContinuesBitForBit) {
  std::mt19937 random(kFeedbackSeed);
  std::normal_distribution<float> normal;
  ErrorFeedback first({{"a", 500}, {"b", 20}}, MomentumCorrection{});
  const auto step = [&](ErrorFeedback& feedback, std::size_t t, std::vector<float>& gradient) {
    Pairs selected;
    feedback.fold(t, gradient, 1.0f, 5, selected);
    feedback.commit(t, selected);
    return selected;
  };
  const auto gradient_of = [&](std::size_t count) {
    std::vector<float> gradient(count);
    for (float& value : gradient) value = normal(random);
    return gradient;
  };
  for (int i = 0; i < 5; ++i) {
    std::vector<float> a = gradient_of(500), b = gradient_of(20);
    step(first, 0, a);
    step(first, 1, b);
  }
  const std::vector<std::byte> bytes = to_bytes(first.save());
  // The order of registration may differ after a restart.
  ErrorFeedback second({{"b", 20}, {"a", 500}}, MomentumCorrection{});
  second.load(feedback_state_from(bytes));
  for (int i = 0; i < 5; ++i) {
    std::vector<float> a = gradient_of(500), b = gradient_of(20);
    ASSERT_EQ(step(first, 0, a), step(second, 1, a));
    ASSERT_EQ(step(first, 1, b), step(second, 0, b));
  }
}

TEST(FeedbackStateTest, RefusesWhatDoesNotFit) {
  const FeedbackState state = ErrorFeedback({{"weight", 3}}).save();
  const auto error_of = [&](ErrorFeedback feedback, const FeedbackState& loaded) {
    try {
      feedback.load(loaded);
    } catch (const KoloError& e) {
      EXPECT_EQ(e.error().code, ErrorCode::kData);
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error_of(ErrorFeedback({{"bias", 3}}), state), HasSubstr("bias"));
  EXPECT_THAT(error_of(ErrorFeedback({{"weight", 4}}), state),
              HasSubstr("another number of elements"));
  EXPECT_THAT(error_of(ErrorFeedback({{"weight", 3}}, MomentumCorrection{}), state),
              HasSubstr("velocity"));
  EXPECT_THAT(error_of(ErrorFeedback(std::vector<FeedbackTensor>{}), state),
              HasSubstr("does not have"));
  const std::vector<std::byte> bytes = to_bytes(state);
  EXPECT_EQ(feedback_state_from(bytes), state);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(feedback_state_from(std::span(bytes).first(size)), KoloError) << size;
  }
}

// I12: the sum of all residuals over the number of ranks is what results are made of.
TEST(FeedbackStateTest, RemappingKeepsTheMeanOfAllRanks) {
  std::mt19937 random(kFeedbackSeed);
  const std::pair<int, int> sizes[] = {{4, 4}, {4, 2}, {2, 8}, {8, 1}, {1, 4}, {6, 3}, {3, 6}};
  for (const auto& [old_size, new_size] : sizes) {
    std::vector<FeedbackState> old_ranks;
    std::vector<double> sum(40), remapped(40);
    for (int p = 0; p < old_size; ++p) {
      old_ranks.push_back({{{.name = "a", .residual = lattice(random, 40), .velocity = {}}}});
      for (std::size_t i = 0; i < 40; ++i) sum[i] += old_ranks.back().tensors[0].residual[i];
    }
    for (int p = 0; p < new_size; ++p) {
      const FeedbackState state = remap(old_ranks, {.tensors = {{"a", 40}},
                                                    .position = p,
                                                    .ranks = new_size,
                                                    .factor = double(new_size) / old_size});
      for (std::size_t i = 0; i < 40; ++i) remapped[i] += state.tensors[0].residual[i];
    }
    for (std::size_t i = 0; i < 40; ++i) {
      ASSERT_EQ(remapped[i] * old_size, sum[i] * new_size)
          << old_size << " to " << new_size << " ranks, seed " << kFeedbackSeed;
    }
  }
}

// Parts of a tensor, cut in two on four ranks, become whole ones on two, and those thirds on three.
TEST(FeedbackStateTest, PartsAreCutAnew) {
  const auto part = [](std::size_t first, std::vector<float> residual) {
    return FeedbackState{
        {{.name = "a", .residual = std::move(residual), .velocity = {}, .first = first}}};
  };
  const std::vector<FeedbackState> halves = {part(0, {1, 2, 3}), part(3, {4, 5, 6}),
                                             part(0, {10, 20, 30}), part(3, {40, 50, 60})};
  std::vector<FeedbackState> wholes;
  for (int p = 0; p < 2; ++p) {
    wholes.push_back(remap(halves, {.tensors = {{"a", 6}}, .position = p, .ranks = 2}));
  }
  EXPECT_THAT(wholes[0].tensors[0].residual, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(wholes[1].tensors[0].residual, ElementsAre(10, 20, 30, 40, 50, 60));
  const FeedbackState third = remap(wholes, {.tensors = {{"a", 2, 2}}, .factor = 0.5});
  EXPECT_EQ(third, part(2, {16.5f, 22}));
}

TEST(FeedbackStateTest, RemappingRefusesWhatDoesNotFit) {
  const auto refused = [](const std::vector<FeedbackState>& old_ranks,
                          const FeedbackTensor& tensor) {
    try {
      remap(old_ranks, {.tensors = {tensor}});
    } catch (const KoloError& e) {
      EXPECT_EQ(e.error().code, ErrorCode::kData);
      return std::string(e.what());
    }
    return std::string("no error");
  };
  const FeedbackState plain{{{.name = "a", .residual = {1, 2}, .velocity = {}}}};
  const FeedbackState moving{{{.name = "a", .residual = {1, 2}, .velocity = {3, 4}}}};
  EXPECT_THAT(refused({plain}, {"b", 2}), HasSubstr("'b'"));
  EXPECT_THAT(refused({plain}, {"a", 3}), HasSubstr("the saved states lack some elements"));
  EXPECT_THAT(refused({}, {"a", 2}), HasSubstr("the saved states lack some elements"));
  EXPECT_THAT(refused({plain, moving}, {"a", 2}), HasSubstr("velocity"));
}

TEST(DensityScheduleTest, DenseThenFallingThenAsAsked) {
  const WarmUp warm_up{.dense_steps = 2, .ramp = {0.25, 0.05}, .steps_per_density = 3};
  const std::vector<std::optional<double>> expected = {
      std::nullopt, std::nullopt, 0.25, 0.25, 0.25, 0.05, 0.05, 0.05, 0.01, 0.01};
  for (std::size_t step = 0; step < expected.size(); ++step) {
    EXPECT_EQ(density_at(warm_up, 0.01, step), expected[step]) << step;
  }
  EXPECT_EQ(density_at({}, 0.01, 0), 0.01);
}

TEST(DensityScheduleTest, KeepsAtLeastOneAndRoundsUp) {
  EXPECT_EQ(pairs_to_keep(0.01, 0), 0u);
  EXPECT_EQ(pairs_to_keep(0.01, 1), 1u);
  EXPECT_EQ(pairs_to_keep(0.01, 100), 1u);
  EXPECT_EQ(pairs_to_keep(0.01, 101), 2u);
  EXPECT_EQ(pairs_to_keep(0.1, 30), 3u);
  EXPECT_EQ(pairs_to_keep(1.0, 12345), 12345u);
  EXPECT_THROW(pairs_to_keep(0.0, 5), UsageError);
  EXPECT_THROW(pairs_to_keep(1.5, 5), UsageError);
}

}  // namespace
}  // namespace kolo
