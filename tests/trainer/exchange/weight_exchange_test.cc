// Tests the steps at which weights are exchanged, and the weights after exchanges. Ranks are
// threads.

#include "trainer/loop/weight_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "comm/base/clock.h"
#include "tests/support/runtime_job.h"
#include "tests/trainer/small_data.h"
#include "trainer/loop/local_updater.h"

namespace kolo::trainer {
namespace {

using testing::HasSubstr;

/// Returns the events after each local step from 1 on: "b1" means that an exchange of fragment 1
/// begins, "e1" that it ends, and "u1" that it is in flight.
std::vector<std::string> course_of(const ExchangeTimes& times, std::uint64_t steps) {
  std::vector<std::string> course;
  for (std::uint64_t step = 1; step <= steps; ++step) {
    std::string& text = course.emplace_back();
    if (const auto fragment = times.begins(step)) text += "b" + std::to_string(*fragment);
    if (const auto fragment = times.ends(step)) text += "e" + std::to_string(*fragment);
    if (const auto fragment = times.under_way(step)) text += "u" + std::to_string(*fragment);
  }
  return course;
}

TEST(ExchangeTimesTest, EachFragmentHasItsTurn) {
  using testing::ElementsAre;
  EXPECT_THAT(course_of({.every = 3}, 7), ElementsAre("", "", "b0e0", "", "", "b0e0", ""));
  EXPECT_THAT(course_of({.every = 6, .fragments = 2, .overlap = 1}, 9),
              ElementsAre("", "", "b0u0", "e0", "", "b1u1", "e1", "", "b0u0"));
  EXPECT_THAT(course_of({.every = 5, .fragments = 2, .overlap = 1}, 8),
              ElementsAre("", "b0u0", "e0", "", "b1u1", "e1", "b0u0", "e0"));
  EXPECT_THAT(course_of({.every = 3, .fragments = 3}, 4),
              ElementsAre("b0e0", "b1e1", "b2e2", "b0e0"));
  EXPECT_THAT(course_of({.every = 4, .overlap = 3}, 9),
              ElementsAre("", "", "", "b0u0", "u0", "u0", "e0", "b0u0", "u0"));
}

TEST(ExchangeTimesTest, RanksAgreeWhereOneExchangeCoversAll) {
  const auto steps_of = [](const ExchangeTimes& times) {
    std::vector<std::uint64_t> steps;
    for (std::uint64_t step = 0; step <= 7; ++step) {
      if (times.agree_after(step)) steps.push_back(step);
    }
    return steps;
  };
  EXPECT_EQ(steps_of({.every = 3}), (std::vector<std::uint64_t>{0, 3, 6}));
  EXPECT_EQ(steps_of({.every = 3, .fragments = 2}), std::vector<std::uint64_t>{0});
  EXPECT_EQ(steps_of({.every = 3, .overlap = 1}), std::vector<std::uint64_t>{0});
}

/// Three parameters with 5, 12 and 3 elements. Element i of all 20 begins as i.
class Weights {
 public:
  Weights() {
    float next = 0.0f;
    for (const std::size_t size : {5u, 12u, 3u}) {
      const std::string name = "of " + std::to_string(size);
      for (float& value : parameters.add(name, {size}, {}).value()) value = next++;
    }
  }
  /// Adds factor · (1 + i) to element i.
  void move(float factor) {
    float next = 0.0f;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      for (float& value : parameters[p].value()) value += factor * ++next;
    }
  }
  std::vector<float> values() const {
    std::vector<float> all;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      for (const float value : std::as_const(parameters[p]).value()) all.push_back(value);
    }
    return all;
  }

  ParameterSet parameters{1};
};

/// Runs `body` on `ranks` ranks, with one rank per node.
void on_ranks(int ranks, const std::function<void(Runtime&)>& body) {
  test::RuntimeJob job(ranks, {.calibrate = "off"});
  test::run_ranks(ranks, [&](const test::RankRun& run) {
    Options options = job.options();
    options.node_id = std::to_string(run.rank());
    Runtime runtime = job.join(run.rank(), options);
    body(runtime);
    runtime.close();
  });
}

// All numbers are small multiples of powers of two, so every sum is exact.

TEST(WeightExchangeTest, WithoutMomentumRanksAgreeOnTheirMean) {
  for (const char* const compression : {"none", "bf16"}) {
    on_ranks(4, [&](Runtime& runtime) {
      Weights weights;
      WeightExchange exchange(runtime, weights.parameters, {.compression = compression});
      exchange.agree();
      for (int round = 1; round <= 3; ++round) {
        // The movements of ranks 0 to 3 have the mean 1.5 · 0.25.
        weights.move(0.25f * static_cast<float>(runtime.rank()));
        exchange.begin(0);
        exchange.finish();
        for (std::size_t i = 0; const float value : weights.values()) {
          const auto index = static_cast<float>(i++);
          ASSERT_EQ(value, index + 0.375f * static_cast<float>(round) * (index + 1.0f));
        }
      }
    });
  }
}

// With d = agreed - mean, a round computes velocity = 0.5 velocity + d, and then
// agreed -= 0.25 (d + 0.5 velocity).
TEST(WeightExchangeTest, TheOuterOptimizerIsNesterovs) {
  on_ranks(2, [](Runtime& runtime) {
    Weights weights;
    WeightExchange exchange(runtime, weights.parameters,
                            {.outer = {.lr = 0.25f, .momentum = 0.5f}});
    exchange.agree();
    std::vector<float> agreed = weights.values();
    std::vector<float> velocity(agreed.size());
    for (int round = 0; round < 3; ++round) {
      weights.move(runtime.rank() == 0 ? 2.0f : -1.0f);
      exchange.begin(0);
      exchange.finish();
      for (std::size_t i = 0; i < agreed.size(); ++i) {
        const float d = -0.5f * static_cast<float>(i + 1);
        velocity[i] = 0.5f * velocity[i] + d;
        agreed[i] -= 0.25f * (d + 0.5f * velocity[i]);
      }
      ASSERT_EQ(weights.values(), agreed);
    }
  });
}

TEST(WeightExchangeTest, OtherFragmentsStayAsTheyAre) {
  // The tensors have 5, 12 and 3 elements, so two fragments have 17 and 3 elements.
  for (const std::vector<std::size_t>& sizes :
       {std::vector<std::size_t>{20}, std::vector<std::size_t>{17, 3},
        std::vector<std::size_t>{5, 12, 3}}) {
    on_ranks(2, [&](Runtime& runtime) {
      Weights weights;
      WeightExchange exchange(runtime, weights.parameters, {.fragments = sizes.size()});
      exchange.agree();
      weights.move(runtime.rank() == 0 ? 2.0f : 4.0f);
      std::vector<float> expected = weights.values();
      std::size_t end = 0;
      for (std::size_t fragment = 0; fragment < sizes.size(); ++fragment) {
        exchange.begin(fragment);
        exchange.finish();
        for (const std::size_t begin = end; end < begin + sizes[fragment]; ++end) {
          expected[end] = static_cast<float>(end) + 3.0f * static_cast<float>(end + 1);
        }
        ASSERT_EQ(weights.values(), expected);
      }
    });
  }
}

TEST(WeightExchangeTest, WhatARankMovesMeanwhileIsKept) {
  on_ranks(2, [](Runtime& runtime) {
    const auto rank = static_cast<float>(runtime.rank());
    Weights weights;
    WeightExchange exchange(runtime, weights.parameters, {});
    exchange.agree();
    weights.move(2.0f * rank);
    exchange.begin(0);
    weights.move(8.0f + rank);
    exchange.finish();
    for (std::size_t i = 0; const float value : weights.values()) {
      const auto index = static_cast<float>(i++);
      ASSERT_EQ(value, index + (1.0f + 8.0f + rank) * (index + 1.0f));
    }
    // The next mean has the movement since then, which is 8.5 on average; ranks had agreed on 1.
    exchange.begin(0);
    exchange.finish();
    for (std::size_t i = 0; const float value : weights.values()) {
      const auto index = static_cast<float>(i++);
      ASSERT_EQ(value, index + 9.5f * (index + 1.0f));
    }
  });
}

TEST(WeightExchangeTest, MoreFragmentsThanTensorsAreRefused) {
  on_ranks(1, [](Runtime& runtime) {
    Weights weights;
    EXPECT_THAT(error_of([&] { WeightExchange(runtime, weights.parameters, {.fragments = 4}); },
                         ErrorCode::kConfig),
                HasSubstr("--fragments 4: the model has 3 tensors, which stay whole"));
  });
}

/// Takes `steps` steps of SGD with learning rate 1 and without momentum. The gradient of element i
/// on rank r is -(1 + i) · 2^r. Returns the weights by rank, step and element.
std::vector<std::vector<std::vector<float>>> course_of(int ranks, int ranks_per_node,
                                                       const LocalOptions& options, int steps) {
  test::RuntimeJob job(ranks, {.calibrate = "off"});
  std::vector<std::vector<std::vector<float>>> courses(static_cast<std::size_t>(ranks));
  test::run_ranks(ranks, [&](const test::RankRun& run) {
    Options own = job.options();
    own.node_id = std::to_string(run.rank() / ranks_per_node);
    Runtime runtime = job.join(run.rank(), own);
    {
      Weights weights;
      const SteadyClock clock;
      const auto updater = make_local_updater(
          runtime, weights.parameters,
          make_optimizer("sgd", weights.parameters, {.momentum = 0.0f}), options, {}, clock);
      for (int step = 0; step < steps; ++step) {
        float i = 0.0f;
        for (std::size_t p = 0; p < weights.parameters.size(); ++p) {
          Parameter& parameter = weights.parameters[p];
          for (float& g : parameter.gradient()) g = -++i * static_cast<float>(1 << run.rank());
          parameter.contributed();
        }
        updater->step(1.0f);
        courses[static_cast<std::size_t>(run.rank())].push_back(weights.values());
      }
    }
    runtime.close();
  });
  return courses;
}

/// Checks that after `step` steps element i of each rank has increased by `movement(rank)` · (1 +
/// i).
void expect_moved(const std::vector<std::vector<std::vector<float>>>& courses, std::size_t step,
                  const std::function<float(std::size_t rank)>& movement) {
  for (std::size_t rank = 0; rank < courses.size(); ++rank) {
    for (std::size_t i = 0; const float value : courses[rank][step - 1]) {
      const auto index = static_cast<float>(i++);
      ASSERT_EQ(value, index + movement(rank) * (index + 1.0f))
          << "rank " << rank << ", step " << step;
    }
  }
}

TEST(LocalUpdaterTest, RanksTakeStepsOfTheirOwnBetweenExchanges) {
  const auto courses = course_of(4, 1, {.times = {.every = 3}}, 7);
  const auto own = [](std::size_t rank) { return static_cast<float>(1 << rank); };
  constexpr float kMean = 15.0f / 4.0f;
  for (std::size_t step = 1; step <= 7; ++step) {
    const auto since = static_cast<float>(step % 3);
    const auto agreed = static_cast<float>(step - step % 3);
    expect_moved(courses, step,
                 [&](std::size_t rank) { return agreed * kMean + since * own(rank); });
  }
}

TEST(LocalUpdaterTest, PostLocalStepsBeginWithGradientsOfAllRanks) {
  const auto courses = course_of(2, 1, {.times = {.every = 2}, .after = 3}, 6);
  expect_moved(courses, 1, [](std::size_t) { return 1.5f; });
  expect_moved(courses, 3, [](std::size_t) { return 4.5f; });
  expect_moved(courses, 4, [](std::size_t rank) { return 4.5f + static_cast<float>(1 << rank); });
  expect_moved(courses, 5, [](std::size_t) { return 7.5f; });
  expect_moved(courses, 6, [](std::size_t rank) { return 7.5f + static_cast<float>(1 << rank); });
}

// Ranks 0 and 1 are one node, whose average is 1.5 in every step. Ranks 2 and 3 are another, whose
// average is 6.
TEST(LocalUpdaterTest, RanksOfANodeAverageEveryStep) {
  const auto courses =
      course_of(4, 2, {.times = {.every = 2}, .unit = LocalOptions::Unit::kNode}, 3);
  const auto node = [](std::size_t rank) { return rank < 2 ? 1.5f : 6.0f; };
  expect_moved(courses, 1, node);
  expect_moved(courses, 2, [](std::size_t) { return 7.5f; });
  expect_moved(courses, 3, [&](std::size_t rank) { return 7.5f + node(rank); });
}

// An exchange sends the movement up to the step at which it begins, and ends a step later.
TEST(LocalUpdaterTest, AnExchangeUnderWayCountsLater) {
  const auto courses = course_of(2, 1, {.times = {.every = 3, .overlap = 1}}, 7);
  const auto own = [](std::size_t rank) { return static_cast<float>(1 << rank); };
  expect_moved(courses, 3, [&](std::size_t rank) { return 3.0f * own(rank); });
  expect_moved(courses, 4, [&](std::size_t rank) { return 3.0f * 1.5f + own(rank); });
  expect_moved(courses, 6, [&](std::size_t rank) { return 3.0f * 1.5f + 3.0f * own(rank); });
  expect_moved(courses, 7, [&](std::size_t rank) { return 6.0f * 1.5f + own(rank); });
}

}  // namespace
}  // namespace kolo::trainer
