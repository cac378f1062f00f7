#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "comm/base/error.h"
#include "tests/trainer/small_data.h"
#include "trainer/optimizer/update_gate.h"
#include "trainer/optimizer/weight_average.h"

namespace kolo::trainer {
namespace {

// A matrix of nine elements, which decays, and a bias. Nine is no multiple of any vector width.
struct Fixture {
  Fixture() : parameters(1) {
    parameters.add("w", {3, 3}, {.mean = 1.0f});
    parameters.add("b", {1}, {.mean = 1.0f});
    parameters.own_gradients();
  }
  void set_gradients(float value) {
    for (std::size_t i = 0; i < 2; ++i) {
      for (float& g : parameters[i].gradient()) g = value;
    }
  }
  ParameterSet parameters;
};

TEST(SgdTest, FollowsHandValues) {
  Fixture f;
  const auto sgd = make_optimizer("sgd", f.parameters, {.momentum = 0.5f, .weight_decay = 0.1f});
  f.set_gradients(2.0f);
  sgd->step(0.1f, 0.5f);
  // w: g = 0.5 · 2 + 0.1 · 1 = 1.1, velocity 1.1, 1 - 0.11 = 0.89. b: 1 - 0.1 · 1 = 0.9.
  for (const float w : f.parameters[0].value()) EXPECT_NEAR(w, 0.89f, 1e-6f);
  EXPECT_NEAR(f.parameters[1].value()[0], 0.9f, 1e-6f);
  sgd->step(0.1f, 0.5f);
  // w: g = 1.089, velocity 0.55 + 1.089 = 1.639. b: velocity 0.5 + 1 = 1.5.
  for (const float w : f.parameters[0].value()) EXPECT_NEAR(w, 0.7261f, 1e-6f);
  EXPECT_NEAR(f.parameters[1].value()[0], 0.75f, 1e-6f);
}

// In the long run, momentum 0.5 doubles decay. Directions, which include momentum, must decay as
// much.
TEST(SgdTest, DecaysAsStronglyAlongDirections) {
  Fixture f;
  const auto sgd = make_optimizer("sgd", f.parameters, {.momentum = 0.5f, .weight_decay = 0.1f});
  EXPECT_FALSE(sgd->adaptation());
  for (int step = 0; step < 2; ++step) {
    f.set_gradients(2.0f);
    sgd->begin_step();
    sgd->follow(0, 0.1f, 0.5f);
  }
  // w: 1 - 0.1 · (1 + 0.2 · 1) = 0.88, and 0.88 - 0.1 · (1 + 0.2 · 0.88).
  for (const float w : f.parameters[0].value()) EXPECT_NEAR(w, 0.7624f, 1e-6f);
}

TEST(AdamWTest, FollowsHandValues) {
  Fixture f;
  const auto adamw =
      make_optimizer("adamw", f.parameters,
                     {.beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-8f, .weight_decay = 0.1f});
  f.set_gradients(2.0f);
  adamw->step(0.1f, 1.0f);
  // After one step, the corrected moments are g and g²: direction 1, and decay 0.1 · 1 for w.
  for (const float w : f.parameters[0].value()) EXPECT_NEAR(w, 0.89f, 1e-6f);
  EXPECT_NEAR(f.parameters[1].value()[0], 0.9f, 1e-6f);
  f.set_gradients(-1.0f);
  adamw->step(0.1f, 1.0f);
  // m = 0.9 · 0.2 - 0.1 = 0.08, corrected / 0.19; v = 0.99 · 0.04 + 0.01 = 0.0496, / 0.0199.
  const double direction = (0.08 / 0.19) / std::sqrt(0.0496 / 0.0199);
  EXPECT_NEAR(f.parameters[1].value()[0], 0.9 - 0.1 * direction, 1e-5);
  for (const float w : f.parameters[0].value()) {
    EXPECT_NEAR(w, 0.89 - 0.1 * (direction + 0.1 * 0.89), 1e-5);
  }
}

// The step along a direction is lr, without momentum. Other parameters keep their momentum.
TEST(AdamWTest, FollowsDirectionsWithoutMomentum) {
  Fixture f;
  const auto adamw =
      make_optimizer("adamw", f.parameters,
                     {.beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-8f, .weight_decay = 0.1f});
  ASSERT_TRUE(adamw->adaptation());
  EXPECT_EQ(adamw->adaptation()->beta2, 0.99f);
  EXPECT_EQ(adamw->adaptation()->epsilon, 1e-8f);
  f.set_gradients(2.0f);
  adamw->step(0.1f, 1.0f);  // w: 0.89, b: 0.9, as above
  f.set_gradients(-1.0f);
  for (float& g : f.parameters[0].gradient()) g = 3.0f;  // a direction
  adamw->begin_step();
  adamw->follow(0, 0.1f, 0.5f);
  adamw->update(1, 0.1f, 0.5f);
  for (const float w : f.parameters[0].value()) {
    EXPECT_NEAR(w, 0.89 - 0.1 * (0.5 * 3.0 + 0.1 * 0.89), 1e-5);
  }
  // b: 0.9 · 0.2 and 0.1 · -0.5; v = 0.99 · 0.04 + 0.01 · 0.25.
  const double b = (0.9 * 0.2 - 0.1 * 0.5) / 0.19 / std::sqrt((0.99 * 0.04 + 0.0025) / 0.0199);
  EXPECT_NEAR(f.parameters[1].value()[0], 0.9 - 0.1 * b, 1e-5);
}

// v = 0.5 v + g; the step is g + 0.5 v: 1 + 0.5, then 1 + 0.5 · 1.5.
TEST(SgdTest, NesterovLooksAhead) {
  Fixture f;
  const auto sgd = make_optimizer("sgd", f.parameters, {.momentum = 0.5f, .nesterov = true});
  f.set_gradients(1.0f);
  sgd->step(0.1f, 1.0f);
  EXPECT_NEAR(f.parameters[1].value()[0], 1.0f - 0.15f, 1e-6f);
  sgd->step(0.1f, 1.0f);
  EXPECT_NEAR(f.parameters[1].value()[0], 0.85f - 0.175f, 1e-6f);
}

TEST(LambTest, StepsAreAsLongAsTheWeights) {
  Fixture f;
  const auto lamb = make_optimizer("lamb", f.parameters, {.epsilon = 1e-8f, .weight_decay = 0.5f});
  f.set_gradients(2.0f);
  lamb->step(0.1f, 1.0f);
  // w: the direction is 1 + 0.5 · 1 = 1.5 everywhere, times |w| / |1.5 w| = 2/3. b: as in Adam.
  for (const float w : f.parameters[0].value()) EXPECT_NEAR(w, 0.9f, 1e-6f);
  EXPECT_NEAR(f.parameters[1].value()[0], 0.9f, 1e-6f);
}

TEST(LarsTest, StepsAreAShareOfTheWeights) {
  Fixture f;
  const auto lars = make_optimizer("lars", f.parameters, {.momentum = 0.5f, .weight_decay = 0.5f});
  f.set_gradients(4.0f);
  lars->step(10.0f, 0.5f);
  // w: |g| = 6, |w| = 3, so local = 0.001 · 3 / (6 + 1.5) = 0.0004; 10 · 0.0004 · (2 + 0.5).
  for (const float w : f.parameters[0].value()) EXPECT_NEAR(w, 0.99f, 1e-6f);
  EXPECT_NEAR(f.parameters[1].value()[0], 1.0f - 10.0f * 2.0f, 1e-5f);
  lars->step(10.0f, 0.5f);
  // The velocity, 0.001, is halved and added: |w| = 2.97, local = 0.001 · 2.97 / (6 + 1.485).
  const double local = 0.001 * 2.97 / 7.485;
  const double velocity = 0.5 * 0.001 + local * (2.0 + 0.5 * 0.99);
  for (const float w : f.parameters[0].value()) EXPECT_NEAR(w, 0.99 - 10.0 * velocity, 1e-5);
}

// The norm of zero weights gives no trust ratio, so they move as in the optimizer without it.
TEST(LambTest, WeightsOfZeroLeaveZero) {
  for (const char* name : {"lamb", "lars"}) {
    Fixture f;
    for (float& w : f.parameters[0].value()) w = 0.0f;
    const auto optimizer = make_optimizer(name, f.parameters, {.weight_decay = 0.5f});
    f.set_gradients(1.0f);
    optimizer->step(0.1f, 1.0f);
    for (const float w : f.parameters[0].value()) EXPECT_NEAR(w, -0.1f, 1e-6f) << name;
  }
}

TEST(DecayRulesTest, TheFirstThatFitsCounts) {
  const auto rules = parse_decay_rules("b=0.5,w*=0,*=0.25");
  ASSERT_EQ(rules.size(), 3u);
  Fixture f;
  const auto sgd = make_optimizer("sgd", f.parameters,
                                  {.momentum = 0.0f, .weight_decay = 0.125f, .decay_rules = rules});
  f.set_gradients(0.0f);
  sgd->step(1.0f, 1.0f);
  EXPECT_EQ(f.parameters[0].value()[0], 1.0f);
  EXPECT_EQ(f.parameters[1].value()[0], 0.5f);
  EXPECT_EQ(unused_rules(parse_decay_rules("c=0,w*=1,w=2,b=3"), f.parameters),
            (std::vector<std::string>{"c", "w"}));
  EXPECT_TRUE(parse_decay_rules("").empty());
  for (const char* text : {"b", "=1", "b=", "b=x", "b=-1", "b=inf", "b=1x", "b=1,,"}) {
    EXPECT_THROW(parse_decay_rules(text), KoloError) << text;
  }
}

// After one step the decay is min(0.5, 2/11), and after two min(0.5, 3/12).
TEST(WeightAverageTest, ForgetsTheFirstWeightsAndSwaps) {
  Fixture f;
  WeightAverage average(f.parameters, 0.5f);
  f.parameters[1].value()[0] = 12.0f;
  average.update();
  const float first = 1.0f * 2 / 11 + 12.0f * 9 / 11;
  f.parameters[1].value()[0] = 20.0f;
  average.update();
  average.swap();
  EXPECT_NEAR(f.parameters[1].value()[0], first * 0.25f + 20.0f * 0.75f, 1e-5f);
  EXPECT_NEAR(f.parameters[0].value()[3], 1.0f, 1e-6f);
  average.swap();
  EXPECT_EQ(f.parameters[1].value()[0], 20.0f);
}

TEST(LrScheduleTest, RisesThenFollowsACosine) {
  const LrSchedule schedule{.peak_lr = 1.0f,
                            .final_lr = 0.1f,
                            .warmup_steps = 4,
                            .total_steps = 15,
                            .fall = cosine_schedule().fall};
  EXPECT_FLOAT_EQ(schedule.at(0), 0.25f);
  EXPECT_FLOAT_EQ(schedule.at(3), 1.0f);
  EXPECT_FLOAT_EQ(schedule.at(4), 1.0f);
  EXPECT_NEAR(schedule.at(9), 0.55f, 1e-6f);  // half way
  EXPECT_FLOAT_EQ(schedule.at(14), 0.1f);
  EXPECT_FLOAT_EQ(schedule.at(1000), 0.1f);
}

TEST(LrScheduleTest, WarmupMayBeLongerThanTraining) {
  const LrSchedule schedule{.peak_lr = 1.0f,
                            .final_lr = 0.0f,
                            .warmup_steps = 10,
                            .total_steps = 5,
                            .fall = cosine_schedule().fall};
  EXPECT_FLOAT_EQ(schedule.at(4), 0.5f);
}

TEST(LrScheduleTest, FallsAsItsNameSays) {
  LrSchedule schedule{.peak_lr = 1.0f,
                      .final_lr = 0.2f,
                      .warmup_steps = 0,
                      .total_steps = 5,
                      .fall = linear_schedule().fall};
  for (const auto& [step, lr] : {std::pair{0, 1.0f}, {1, 0.8f}, {3, 0.4f}, {4, 0.2f}, {9, 0.2f}}) {
    EXPECT_FLOAT_EQ(schedule.at(static_cast<std::size_t>(step)), lr) << step;
  }
  schedule.fall = constant_schedule().fall;
  for (const std::size_t step : {0, 2, 4, 9}) EXPECT_FLOAT_EQ(schedule.at(step), 1.0f) << step;
  schedule.total_steps = 9;
  schedule.fall = step_schedule().fall;
  for (const auto& [step, share] :
       {std::pair{0, 1.0f}, {3, 1.0f}, {4, 0.1f}, {5, 0.1f}, {6, 0.01f}}) {
    EXPECT_FLOAT_EQ(schedule.at(static_cast<std::size_t>(step)), 0.2f + 0.8f * share) << step;
  }
}

TEST(GradientNormTest, IsTheNormOfAllGradientsTogether) {
  Fixture f;
  f.set_gradients(3.0f);
  EXPECT_NEAR(gradient_norm(f.parameters), std::sqrt(10.0) * 3.0, 1e-6);
}

TEST(GradientNormTest, ClipsOnlyWhatIsTooLong) {
  EXPECT_EQ(clip_factor(10.0, 0.0), 1.0f);
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0f);
  EXPECT_FLOAT_EQ(clip_factor(4.0, 1.0), 0.25f);
}

}  // namespace
}  // namespace kolo::trainer
