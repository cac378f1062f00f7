// Gradient sets whose sizes change between iterations, on engines that share a thread: time is the
// test's, so what is found is known.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <random>
#include <set>

#include "tests/support/engine_job.h"

namespace kolo {
namespace {

using test::EngineJob;
using test::error_of;

constexpr std::size_t kKiB = 1024;

/// A job whose steps take as long as `step_us` says of rank 0's plan.
class TunedJob {
 public:
  using StepUs = std::function<double(const PlanSummary&)>;

  TunedJob(std::vector<int> nodes, Options options, std::uint64_t seed)
      : job_(ProcessGrid::with_node_sizes(nodes), options, seed), random_(seed) {
    memory_.resize(static_cast<std::size_t>(job_.world_size()));
    submit_set();
    job_.run_until_registered(groups_);
    for (const auto& group : groups_) {
      for (std::size_t g = 0; g < group->gradients().size(); ++g) {
        places_.push_back(group->view(g).data);
      }
    }
  }

  EngineJob& job() { return job_; }
  GradientGroup& group(int rank) { return *groups_[static_cast<std::size_t>(rank)]; }
  PlanSummary plan() { return group(0).summary(); }

  /// One iteration; returns rank 0's sums. Ranks mark in orders of their own.
  std::vector<float> step(const StepUs& step_us) {
    std::set<std::uint64_t> plans;
    for (const auto& group : groups_) plans.insert(group->summary().hash);
    EXPECT_EQ(plans.size(), 1u) << "ranks run different plans";
    for (int rank = 0; rank < job_.world_size(); ++rank) mark_all(rank);
    job_.run_until_idle();
    job_.clock().advance(std::chrono::duration_cast<Duration>(
        std::chrono::duration<double, std::micro>(step_us(plan()))));
    for (const auto& group : groups_) EXPECT_TRUE(group->wait(std::chrono::milliseconds(1)));
    expect_places();
    return sums();
  }

  void mark_all(int rank) {
    GradientGroup& mine = group(rank);
    std::vector<std::size_t> order(mine.gradients().size());
    for (std::size_t g = 0; g < order.size(); ++g) order[g] = g;
    std::shuffle(order.begin(), order.end(), random_);
    for (std::size_t g : order) {
      auto* values = static_cast<float*>(mine.view(g).data);
      std::mt19937 generator(static_cast<unsigned>(rank * 100 + static_cast<int>(g)));
      for (std::size_t i = 0; i < mine.view(g).count; ++i) {
        values[i] = std::uniform_real_distribution<float>(-1, 1)(generator);
      }
      test::mark(job_.engine(rank), mine, g);
    }
  }

 private:
  /// Half of the gradients live in the arena, half elsewhere.
  void submit_set() {
    for (int rank = 0; rank < job_.world_size(); ++rank) {
      auto& mine = memory_[static_cast<std::size_t>(rank)];
      std::vector<GradientSpec> specs;
      for (std::size_t g = 0; g < kGradients; ++g) {
        mine.emplace_back(kCount + g);
        specs.push_back({.name = "g" + std::to_string(g), .shape = {kCount + g}});
        if (g >= kGradients / 2) specs.back().data = mine.back().data();
      }
      groups_.push_back(std::make_shared<GradientGroup>("model", specs, GradientOptions{}));
      job_.engine(rank).submit(groups_.back());
    }
  }

  void expect_places() {
    std::size_t next = 0;
    for (const auto& group : groups_) {
      for (std::size_t g = 0; g < group->gradients().size(); ++g) {
        ASSERT_EQ(group->view(g).data, places_[next++]) << "gradient " << g << " moved";
      }
    }
  }

  std::vector<float> sums() {
    std::vector<float> all;
    for (std::size_t g = 0; g < kGradients; ++g) {
      const auto* values = static_cast<const float*>(group(0).view(g).data);
      all.insert(all.end(), values, values + group(0).view(g).count);
    }
    return all;
  }

  static constexpr std::size_t kGradients = 16;
  static constexpr std::size_t kCount = 6 * kKiB;

  EngineJob job_;
  std::mt19937_64 random_;
  std::vector<std::vector<std::vector<float>>> memory_;
  std::vector<std::shared_ptr<GradientGroup>> groups_;
  std::vector<void*> places_;
};

/// Each doubling away from `best` costs a tenth of a step.
TunedJob::StepUs valley(std::size_t best) {
  return [best](const PlanSummary& plan) {
    const double away =
        std::log2(static_cast<double>(plan.fusion_bytes) / static_cast<double>(best));
    return 1000 * (1 + 0.1 * std::abs(away));
  };
}

Options tuned(std::string file = {}) {
  return {.calibration_file = std::move(file), .autotune = "on"};
}

class Retune : public testing::TestWithParam<std::vector<int>> {
 protected:
  static Options options(std::string file = {}) {
    Options options = tuned(std::move(file));
    if (GetParam().size() > 1) options.algorithm = "direct";
    return options;
  }
};

// Finds the valley, stops looking, and neither bits nor places change on the way.
TEST_P(Retune, FindsBetterSizesWhileSumsStayTheSame) {
  for (std::uint64_t seed = 0; seed < 2; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    TunedJob job(GetParam(), options(), seed);
    // Some ranks fall behind after their last mark; the others wait for them before they change.
    const std::size_t best = seed == 0 ? 64 * kKiB : job.plan().fusion_bytes;
    const std::vector<float> reference = job.step(valley(best));
    std::set<std::uint64_t> plans;
    std::size_t last_change = 0;
    std::uint64_t hash = job.plan().hash;
    for (std::size_t step = 1; step < 260; ++step) {
      ASSERT_EQ(job.step(valley(best)), reference) << "step " << step;
      plans.insert(job.plan().hash);
      if (std::exchange(hash, job.plan().hash) != job.plan().hash) last_change = step;
    }
    EXPECT_GT(plans.size(), 1u) << "nothing was tried";
    EXPECT_LT(last_change, 200u) << "it did not settle";
    EXPECT_EQ(job.plan().fusion_bytes, best);
  }
}

// The next job of this shape begins with what this one has found.
TEST_P(Retune, ASecondRunBeginsWithTheAnswer) {
  const std::string path = testing::TempDir() + "retune_test." + std::to_string(::getpid());
  std::filesystem::remove(path);
  {
    TunedJob job(GetParam(), options(path), 1);
    for (int step = 0; step < 260; ++step) job.step(valley(64 * kKiB));
    ASSERT_EQ(job.plan().fusion_bytes, 64 * kKiB);
  }
  TunedJob job(GetParam(), options(path), 2);
  EXPECT_EQ(job.plan().fusion_bytes, 64 * kKiB);
  const std::uint64_t hash = job.plan().hash;
  for (int step = 0; step < 60; ++step) {
    job.step(valley(256 * kKiB));
    ASSERT_EQ(job.plan().hash, hash) << "it looks again";
  }
  std::filesystem::remove(path);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Retune,
                         testing::Values(std::vector<int>{2}, std::vector<int>{4},
                                         std::vector<int>{2, 1}));

// Where sizes decide the order of sums, and where they are given, nothing is tried.
TEST(Tuning, LeavesSizesAloneThatDecideBitsOrAreGiven) {
  struct Case {
    std::vector<int> nodes;
    Options options;
  };
  std::vector<Case> cases = {{{2}, tuned()}, {{3}, tuned()}, {{2, 1}, tuned()}, {{2}, tuned()}};
  cases[0].options.autotune = "off";
  cases[1].options.algorithm = "ring";
  cases[3].options.fusion_bytes = 128 * kKiB;
  cases[3].options.chunk_bytes = 64 * kKiB;
  for (const Case& each : cases) {
    TunedJob job(each.nodes, each.options, 5);
    const std::uint64_t hash = job.plan().hash;
    for (int step = 0; step < 40; ++step) {
      job.step(valley(64 * kKiB));
      ASSERT_EQ(job.plan().hash, hash);
    }
  }
}

// Rank 2 has not finished the iteration after which sizes change; ranks 0 and 1 use other names
// meanwhile, which need buckets of their own.
TEST(Tuning, NewTensorsAreAgreedOnWhileARankIsLate) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    TunedJob job({3}, tuned(), seed);
    EngineJob& engines = job.job();
    for (int step = 0; step < 50; ++step) {
      std::vector<std::vector<float>> data(3, std::vector<float>(40, 1.0F));
      std::vector<std::shared_ptr<Operation>> operations;
      const auto submit = [&](int rank) {
        operations.push_back(
            engines.submit(rank, {.kind = OperationKind::kAllReduce,
                                  .name = "loss" + std::to_string(step % 7),
                                  .buffer = test::view(data[static_cast<std::size_t>(rank)])}));
      };
      job.mark_all(0);
      submit(0);
      job.mark_all(1);
      submit(1);
      engines.poll(200);
      submit(2);
      job.mark_all(2);
      engines.finish(operations);
      engines.run_until_idle();
      engines.clock().advance(std::chrono::milliseconds(step % 3));
      for (int rank = 0; rank < 3; ++rank) {
        ASSERT_TRUE(job.group(rank).wait(std::chrono::milliseconds(1))) << "step " << step;
      }
      for (const auto& mine : data) ASSERT_THAT(mine, testing::Each(3.0F));
    }
  }
}

// Whoever waits for the change of sizes learns why it does not come.
TEST(Tuning, ARankThatLeavesWhileSizesChangeEndsTheWaitOfAll) {
  std::size_t in_exchange = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    TunedJob job({3}, tuned(), seed);
    EngineJob& engines = job.job();
    // Through the first window; the next iteration ends with an exchange.
    const auto exchanging = [&] {
      return engines.engine(0).describe_wait().find("the sizes of") != std::string::npos;
    };
    for (int step = 0; step < 15; ++step) job.step(valley(64 * kKiB));
    job.mark_all(0);
    job.mark_all(1);
    job.mark_all(2);
    for (int poll = 0; poll < 5000 && !exchanging(); ++poll) engines.poll(1);
    if (!exchanging()) continue;
    ++in_exchange;
    engines.engine(2).abort({.code = ErrorCode::kPeerLost, .rank = 2, .peer = 2, .what = "left"});
    engines.run_until([&] { return job.group(0).failed() && job.group(1).failed(); },
                      std::chrono::milliseconds(10));
    for (int rank : {0, 1}) {
      EXPECT_THROW(job.group(rank).wait(std::chrono::milliseconds(1)), KoloError);
    }
  }
  EXPECT_GT(in_exchange, 0u) << "the exchange was never seen";
}

}  // namespace
}  // namespace kolo
