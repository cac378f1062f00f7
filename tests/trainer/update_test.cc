// Tests the path from averages to the update: every rank takes a step, or none. Ranks are threads.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "comm/base/clock.h"
#include "comm/base/error.h"
#include "tests/support/runtime_job.h"
#include "tests/trainer/small_data.h"
#include "trainer/loop/gradient_exchange.h"

namespace kolo::trainer {
namespace {

using Mode = LossScaler::Mode;
using Report = StepReport;

/// Returns a rank's contribution `value` in one iteration: element i of every gradient is value ·
/// (1 + i / 16), which 16-bit floats represent exactly, times the loss scale.
using GradientOf = std::function<float(int rank, int iteration)>;

struct Course {
  std::vector<Report> reports;        ///< By iteration.
  std::vector<float> loss_scales;     ///< Before each iteration, and at the end.
  std::vector<std::uint64_t> hashes;  ///< Hashes of the weights, after each iteration.
};

/// A clock that advances by one second at each reading.
class TickingClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(std::chrono::seconds(++readings_)); }

 private:
  mutable int readings_ = 0;
};

/// Trains two parameters for `iterations` steps on `ranks` ranks. Gradients are sent as float16.
std::vector<Course> run_course(int ranks, int iterations, const std::string& optimizer,
                               const UpdateGate::Options& options, const GradientOf& gradient_of) {
  test::RuntimeJob job(ranks, {.calibrate = "off", .wire_dtype = DType::kFloat16});
  std::vector<Course> courses(static_cast<std::size_t>(ranks));
  test::run_ranks(ranks, [&](const test::RankRun& run) {
    const auto rank = static_cast<std::size_t>(run.rank());
    Runtime runtime = job.join(run.rank());
    {
      // Rank 0's values are broadcast, so the seeds may differ.
      ParameterSet parameters(rank);
      parameters.add("matrix", {3, 4}, {.deviation = 1.0f});
      parameters.add("vector", {5}, {.mean = 1.0f});
      const TickingClock clock;
      GradientExchange learner(runtime, parameters,
                               make_optimizer(optimizer, parameters, {.weight_decay = 0.1f}),
                               {.gate = options}, clock);
      Course& course = courses[rank];
      for (int iteration = 0; iteration < iterations; ++iteration) {
        course.loss_scales.push_back(learner.loss_scale());
        const float value = gradient_of(run.rank(), iteration) * learner.loss_scale();
        for (std::size_t i = parameters.size(); i-- > 0;) {
          float factor = 1.0f;
          for (float& g : parameters[i].gradient()) g = value * (factor += 0.0625f);
          parameters[i].contributed();
        }
        course.reports.push_back(learner.step(0.1f));
        course.hashes.push_back(parameters.hash());
      }
      course.loss_scales.push_back(learner.loss_scale());
    }
    runtime.close();
  });
  return courses;
}

float calm(int rank, int iteration) {
  return 0.125f * static_cast<float>(1 + (rank + iteration) % 3);
}

// The wire can represent all of float32's range, so only the scaled gradient overflows.
constexpr int kOverflowAt = 3;
constexpr float kTooMuch = 0x1p120f;

GradientOf with_one_overflow(int overflowing_rank) {
  return [=](int rank, int iteration) {
    if (iteration == kOverflowAt && rank == overflowing_rank) return kTooMuch;
    return calm(rank, iteration);
  };
}

// The clock advances only when it is read, so each measured call lasts one second: two marks of
// gradients, one wait, and the exchange of the norm's parts.
TEST(ExposedCommunicationTest, IsTheTimeOfEveryCallThatHandsOverOrWaits) {
  for (const Course& course : run_course(2, 3, "sgd", {}, calm)) {
    for (const Report& report : course.reports) EXPECT_EQ(report.exposed, std::chrono::seconds(4));
  }
}

class OverflowTest : public testing::TestWithParam<const char*> {};

TEST_P(OverflowTest, OfOneRankMakesAllRanksSkipTheSameStep) {
  constexpr int kIterations = 6;
  const UpdateGate::Options dynamic{.loss_scale = {.mode = Mode::kDynamic}};
  for (const int ranks : {1, 2, 3, 4}) {
    SCOPED_TRACE(ranks);
    const std::vector<Course> courses =
        run_course(ranks, kIterations, GetParam(), dynamic, with_one_overflow(ranks - 1));
    for (const Course& course : courses) {
      for (std::size_t i = 0; i < kIterations; ++i) {
        EXPECT_EQ(course.reports[i].is_skipped, i == kOverflowAt) << "iteration " << i;
        EXPECT_EQ(course.loss_scales[i + 1], i < kOverflowAt ? 65536.0f : 32768.0f);
        EXPECT_EQ(course.hashes[i], courses[0].hashes[i]) << "iteration " << i;
      }
      EXPECT_EQ(course.hashes[kOverflowAt], course.hashes[kOverflowAt - 1]);
      EXPECT_NE(course.hashes[kOverflowAt + 1], course.hashes[kOverflowAt]);
    }
  }
}

// A course without the overflowing iteration must end with the same bits: the skipped step changes
// neither moments nor step count. Loss scales differ after it, by powers of two, which change no
// bit of gradients that are normal numbers of float16.
TEST_P(OverflowTest, LeavesTheOptimizerAsItWas) {
  const UpdateGate::Options dynamic{.clip_norm = 0.5, .loss_scale = {.mode = Mode::kDynamic}};
  const Course skipping = run_course(2, 6, GetParam(), dynamic, with_one_overflow(1))[0];
  const Course without = run_course(2, 5, GetParam(), dynamic, [](int rank, int iteration) {
    return calm(rank, iteration < kOverflowAt ? iteration : iteration + 1);
  })[0];
  EXPECT_EQ(skipping.hashes.back(), without.hashes.back());
  EXPECT_NE(skipping.loss_scales.back(), without.loss_scales.back());
}

INSTANTIATE_TEST_SUITE_P(Optimizers, OverflowTest, testing::Values("sgd", "adamw"),
                         [](const auto& tested) { return std::string(tested.param); });

// A loss scale that is a power of two within float16's range changes only values that would have
// been lost to underflow.
TEST(LossScaledUpdateTest, TakesTheScaleOffAgain) {
  const UpdateGate::Options off{.clip_norm = 0.5};
  const UpdateGate::Options fixed{.clip_norm = 0.5,
                                  .loss_scale = {.mode = Mode::kFixed, .scale = 1024.0f}};
  const Course plain = run_course(3, 4, "adamw", off, calm)[0];
  const Course scaled = run_course(3, 4, "adamw", fixed, calm)[0];
  EXPECT_EQ(scaled.hashes, plain.hashes);
  for (std::size_t i = 0; i < plain.reports.size(); ++i) {
    EXPECT_EQ(scaled.reports[i].gradient_norm, plain.reports[i].gradient_norm);
  }
}

TEST(LossScaledUpdateTest, KeepsGradientsThatFloat16WouldLose) {
  // float16 ends at 2^-24, and the wire has not yet adapted to small values.
  const auto tiny = [](int, int) { return 0x1p-30f; };
  const auto fixed = UpdateGate::Options{.loss_scale = {.mode = Mode::kFixed, .scale = 0x1p20f}};
  EXPECT_EQ(run_course(2, 1, "sgd", {}, tiny)[0].reports[0].gradient_norm, 0.0);
  EXPECT_GT(run_course(2, 1, "sgd", fixed, tiny)[0].reports[0].gradient_norm, 0x1p-30);
}

TEST(LossScaledUpdateTest, NotANumberIsSkippedAsOverflowIs) {
  const UpdateGate::Options fixed{.loss_scale = {.mode = Mode::kFixed, .scale = 2.0f}};
  const auto courses = run_course(3, 2, "adamw", fixed, [](int rank, int iteration) {
    return rank == 1 && iteration == 0 ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
  });
  for (const Course& course : courses) {
    EXPECT_TRUE(course.reports[0].is_skipped);
    EXPECT_FALSE(course.reports[1].is_skipped);
    EXPECT_EQ(course.loss_scales.back(), 2.0f);
  }
}

// Without a scale that can be lowered, there is no retry.
TEST(UpdateGateTest, WithoutAScaleThatCanFallOverflowIsAnError) {
  const double infinity = std::numeric_limits<double>::infinity();
  UpdateGate off({});
  EXPECT_TRUE(off.judge(infinity).has_diverged);
  UpdateGate dynamic({.loss_scale = {.mode = Mode::kDynamic, .scale = 4.0f}});
  EXPECT_TRUE(dynamic.judge(infinity).is_skipped);
  EXPECT_FALSE(dynamic.judge(0.5).has_diverged);
  EXPECT_TRUE(dynamic.judge(std::numeric_limits<double>::quiet_NaN()).is_skipped);
  EXPECT_EQ(dynamic.loss_scale(), 1.0f);
  EXPECT_TRUE(dynamic.judge(infinity).has_diverged);
}

TEST(UpdateGateTest, ClipsTheUnscaledNorm) {
  UpdateGate gate({.clip_norm = 2.0, .loss_scale = {.mode = Mode::kFixed, .scale = 16.0f}});
  const UpdateVerdict verdict = gate.judge(128.0);
  EXPECT_EQ(verdict.gradient_norm, 8.0);
  EXPECT_EQ(verdict.gradient_scale, 0.25f / 16.0f);
  EXPECT_FALSE(verdict.is_skipped);
}

}  // namespace
}  // namespace kolo::trainer
