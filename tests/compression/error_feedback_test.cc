#include "compression/error_feedback.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/base/error.h"
#include "compression/sparse_all_reduce.h"

namespace kolo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint32_t kFeedbackSeed = 53;

// Returns small integers times 2^-6, so that all sums are exact.
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

// The residual of one rank has at most its share of the gradient's energy.
TEST(ErrorFeedbackTest, WhatIsLeftIsAContraction) {
  std::mt19937 random(kFeedbackSeed);
  for (int round = 0; round < 20; ++round) {
    const std::size_t count = 1 + random() % 5000;
    const std::size_t k = pairs_to_keep(0.001 + 0.5 * (round % 2), count);
    std::normal_distribution<float> normal;
    std::vector<float> gradient(count);
    for (float& value : gradient) value = normal(random);
    ErrorFeedback feedback({{"a", count}});
    Pairs selected;
    feedback.fold(0, gradient, 1.0f, k, selected);
    feedback.commit(0, selected);
    double before = 0;
    for (const float value : gradient) before += double{value} * double{value};
    const double share = static_cast<double>(k) / static_cast<double>(count);
    // The squares are summed in float64: `count` roundings of a relative 2^-53 each.
    EXPECT_LE(std::pow(feedback.residual_norm(0), 2),
              (1 - share) * before + before * static_cast<double>(count) * 0x1p-52)
        << "seed " << kFeedbackSeed;
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

// An aborted step changes no bit, including the velocity.
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

TEST(MomentumCorrectionTest, WhatWasSentLeavesTheVelocity) {
  ErrorFeedback feedback({{"a", 2}}, MomentumCorrection{.momentum = 0.5f});
  Pairs selected;
  feedback.fold(0, std::vector<float>{8, 2}, 1.0f, 1, selected);
  feedback.commit(0, selected);
  EXPECT_THAT(feedback.save().tensors[0].velocity, ElementsAre(0, 2));
  EXPECT_THAT(residual_of(feedback, 0), ElementsAre(0, 2));
  feedback.fold(0, std::vector<float>{0, 0}, 1.0f, 1, selected);
  EXPECT_THAT(selected.indices, ElementsAre(1));
  EXPECT_THAT(selected.values, ElementsAre(3));  // the residual and half of the velocity
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

// Tensors may be registered in another order after a restart.
TEST(FeedbackStateTest, LoadingTakesTensorsByName) {
  ErrorFeedback first({{"a", 3}, {"b", 2}}, MomentumCorrection{});
  const std::vector<std::vector<float>> gradients = {{4, 5, 6}, {8, 9}};
  for (const std::size_t t : {0u, 1u}) {
    Pairs selected;
    first.fold(t, gradients[t], 1.0f, 1, selected);
    first.commit(t, selected);
  }
  ErrorFeedback second({{"b", 2}, {"a", 3}}, MomentumCorrection{});
  second.load(feedback_state_from(to_bytes(first.save())));
  EXPECT_EQ(second.save().tensors[0], first.save().tensors[1]);
  EXPECT_EQ(second.save().tensors[1], first.save().tensors[0]);
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

// Four ranks have halves of a tensor, then two ranks have it whole, and then a rank has a third.
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
