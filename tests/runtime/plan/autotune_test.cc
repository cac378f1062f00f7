#include "runtime/plan/autotune.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <set>
#include <utility>

namespace kolo {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;

/// Time of a step in a simulated job: by candidate, with jitter and interruptions.
class SimulatedJob {
 public:
  using StepUs = std::function<double(const TuneCandidate&)>;

  SimulatedJob(StepUs step_us, std::uint64_t seed, double jitter = 0.02)
      : step_us_(std::move(step_us)), random_(seed), jitter_(jitter) {}

  double step(const TuneCandidate& candidate) {
    const double jitter = std::normal_distribution<>(0, jitter_)(random_);
    const bool interrupted = std::uniform_real_distribution<>(0, 1)(random_) < 0.1;
    return step_us_(candidate) * (1 + jitter) * (interrupted ? 1.5 : 1);
  }

 private:
  StepUs step_us_;
  std::mt19937_64 random_;
  double jitter_;
};

/// Runs to the end; returns the steps it took.
int run(Autotune& tune, SimulatedJob& job) {
  int steps = 0;
  for (; !tune.finished() && steps < 10'000; ++steps) tune.record(job.step(tune.current()));
  return steps;
}

double doublings(std::size_t a, std::size_t b) {
  return std::log2(static_cast<double>(a) / static_cast<double>(b));
}

/// A valley: each doubling away from the best sizes costs a share of a step.
SimulatedJob::StepUs valley(TuneCandidate best, double share) {
  return [=](const TuneCandidate& candidate) {
    return 10'000 * (1 + share * std::abs(doublings(candidate.fusion_bytes, best.fusion_bytes)) +
                     share / 2 * std::abs(doublings(candidate.chunk_bytes, best.chunk_bytes)));
  };
}

TEST(Autotune, FindsTheBottomOfAValley) {
  for (const TuneCandidate& best :
       {TuneCandidate{8 * kMiB, 256 * kKiB}, TuneCandidate{256 * kKiB, 4 * kMiB},
        TuneCandidate{64 * kMiB, 64 * kKiB}, TuneCandidate{2 * kMiB, 1 * kMiB}}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      SCOPED_TRACE(testing::Message() << "seed " << seed);
      Autotune tune({.fusion_bytes = 2 * kMiB, .chunk_bytes = kMiB});
      SimulatedJob job(valley(best, 0.2), seed, 0.01);
      EXPECT_LT(run(tune, job), 300);
      EXPECT_TRUE(tune.finished());
      EXPECT_EQ(tune.current(), best);
      EXPECT_NEAR(tune.step_us(), 10'000, 500);
    }
  }
}

// As measured with one bucket for all at 1 Gbit/s: the first halving gains nothing.
TEST(Autotune, LooksBeyondAPlateau) {
  const auto truth = [](const TuneCandidate& candidate) {
    const double from_best = doublings(candidate.fusion_bytes, 256 * kKiB);
    return 29'000 + 700 * std::min(std::abs(from_best), 3.0);
  };
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Autotune tune({.fusion_bytes = 4 * kMiB, .chunk_bytes = kMiB});
    SimulatedJob job(truth, seed, 0.01);
    EXPECT_LE(run(tune, job), 300);
    EXPECT_LE(truth(tune.current()), 1.03 * 29'000);
  }
}

TEST(Autotune, StaysWhereItBeganIfNothingHelps) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const TuneCandidate first{2 * kMiB, kMiB};
    Autotune tune(first);
    SimulatedJob job([](const TuneCandidate&) { return 10'000; }, seed, 0.05);
    run(tune, job);
    EXPECT_EQ(tune.current(), first);
  }
}

// Whatever it ends with is no slower than the beginning, by more than what it calls a gain.
TEST(Autotune, NeverEndsMuchSlowerThanItBegan) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const double a = std::uniform_real_distribution<>(-0.1, 0.1)(random);
    const double b = std::uniform_real_distribution<>(-0.1, 0.1)(random);
    const auto truth = [=](const TuneCandidate& candidate) {
      return 10'000 * std::exp(a * std::sin(doublings(candidate.fusion_bytes, kMiB)) +
                               b * std::cos(doublings(candidate.chunk_bytes, kMiB)));
    };
    const TuneCandidate first{std::size_t{64} * kKiB << (random() % 11),
                              std::size_t{64} * kKiB << (random() % 11)};
    Autotune tune(first);
    SimulatedJob job(truth, seed, 0.03);
    run(tune, job);
    EXPECT_LE(truth(tune.current()), 1.01 * truth(first));
  }
}

TEST(Autotune, AMachineThatBecomesFasterIsNoMerit) {
  int steps = 0;
  const auto truth = [&](const TuneCandidate&) { return ++steps < 20 ? 20'000.0 : 10'000.0; };
  const TuneCandidate first{2 * kMiB, kMiB};
  Autotune tune(first);
  SimulatedJob job(truth, 1);
  run(tune, job);
  EXPECT_TRUE(tune.finished());
  EXPECT_EQ(tune.current(), first);
}

TEST(Autotune, DoesNotCountTheStepsAfterAChange) {
  Autotune tune({2 * kMiB, kMiB}, {.warmup_steps = 2, .steps = 3});
  std::set<std::size_t> seen;
  while (!tune.finished()) {
    const std::size_t fusion = tune.current().fusion_bytes;
    // Each change costs two slow steps, with which every candidate but the first would lose.
    for (const double us : {1e9, 1e9, 1.0, 1.0, 1.0}) {
      if (!tune.finished()) tune.record(fusion > 2 * kMiB ? us / 2 : us);
    }
    seen.insert(fusion);
  }
  EXPECT_EQ(tune.current().fusion_bytes, 4 * kMiB);
  EXPECT_TRUE(seen.contains(8 * kMiB));
}

TEST(Autotune, KeepsToItsBounds) {
  Autotune tune({64 * kKiB, 64 * kMiB});
  // Smaller buckets and larger chunks always help.
  SimulatedJob job(
      [](const TuneCandidate& candidate) {
        EXPECT_GE(candidate.fusion_bytes, 64 * kKiB);
        EXPECT_LE(candidate.chunk_bytes, 64 * kMiB);
        return 1000 + 100 * doublings(candidate.fusion_bytes, 64 * kKiB) -
               10 * doublings(candidate.chunk_bytes, 64 * kKiB);
      },
      3);
  run(tune, job);
  EXPECT_EQ(tune.current(), (TuneCandidate{64 * kKiB, 64 * kMiB}));
}

TEST(Autotune, SaysWhenThePlanMustChange) {
  Autotune tune({2 * kMiB, kMiB});
  SimulatedJob job(valley({8 * kMiB, kMiB}, 0.2), 5);
  while (!tune.finished()) {
    const TuneCandidate before = tune.current();
    const bool changed = tune.record(job.step(before));
    EXPECT_EQ(changed, tune.current() != before);
  }
  EXPECT_FALSE(tune.record(1));
}

}  // namespace
}  // namespace kolo
