// Sets whose gradients become ready in another order than the reverse of their registration, on
// engines that share a thread and then on one thread per rank.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/engine_job.h"
#include "tests/support/node_shapes.h"
#include "tests/support/runtime_job.h"
#include "tests/support/sanitized.h"

namespace kolo {
namespace {

using std::chrono::milliseconds;
using Order = std::vector<std::size_t>;

constexpr std::size_t kSetSize = 24, kElements = 64;
constexpr unsigned kSeeds = test::kSanitized ? 1 : 3;
constexpr int kMeasured = static_cast<int>(MarkOrder::kIterations);

Order reversed() {
  Order order(kSetSize);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

/// As reversed, but what was registered last is ready last.
Order late() {
  Order order = reversed();
  std::ranges::rotate(order, order.begin() + 1);
  return order;
}

Order shuffled(unsigned seed) {
  Order order = reversed();
  std::ranges::shuffle(order, std::mt19937(seed));
  return order;
}

/// Gradients with an odd number are in memory of the test, or none is, or all are.
enum class Memory { kArena, kUser, kBoth };

/// Four gradients share a bucket.
Options options(const std::string& order, const std::string& algorithm = "auto") {
  return {.fusion_bytes = 4 * kElements * sizeof(float),
          .bucket_order = order,
          .algorithm = algorithm,
          .verify_schedules = true};
}

struct OrderedSet {
  std::vector<int> nodes = {1, 1};
  Options options = kolo::options("measured");
  Memory memory = Memory::kArena;
  GradientOptions gradients = {.op = ReduceOp::kSum};
  float unit = 0x1p-6F;  ///< Sums of multiples of a power of two are exact.
};

class OrderedJob {
 public:
  using OrderOf = std::function<Order(int rank, int iteration)>;

  OrderedJob(const OrderedSet& set, std::uint64_t seed)
      : set_(set),
        job_(ProcessGrid::with_node_sizes(set.nodes), set.options, seed),
        random_(seed),
        memory_(static_cast<std::size_t>(job_.world_size()),
                std::vector<float>(kSetSize * kElements)) {
    for (int rank = 0; rank < job_.world_size(); ++rank) {
      std::vector<GradientSpec> specs;
      for (std::size_t g = 0; g < kSetSize; ++g) {
        const bool is_users =
            set.memory == Memory::kUser || (set.memory == Memory::kBoth && g % 2 == 1);
        float* place = memory_[static_cast<std::size_t>(rank)].data() + g * kElements;
        specs.push_back({.name = "g" + std::to_string(g),
                         .shape = {kElements},
                         .data = is_users ? place : nullptr});
      }
      groups_.push_back(std::make_shared<GradientGroup>("model", specs, set.gradients));
      job_.engine(rank).submit(groups_.back());
    }
    job_.run_until_registered(groups_);
    for (std::size_t g = 0; g < kSetSize; ++g) places_.push_back(group(0).view(g).data);
  }

  GradientGroup& group(int rank) { return *groups_[static_cast<std::size_t>(rank)]; }
  PlanSummary plan() { return group(0).summary(); }

  /// Ranks mark in their orders and poll, in turns that the seed decides. Returns rank 0's results,
  /// as bits.
  std::vector<std::uint32_t> step(const OrderOf& order_of) {
    const int ranks = job_.world_size();
    std::vector<Order> left;
    for (int rank = 0; rank < ranks; ++rank) {
      left.push_back(order_of(rank, step_));
      std::ranges::reverse(left.back());
    }
    expected_.assign(kSetSize, std::vector<double>(kElements));
    for (std::size_t marks = kSetSize * static_cast<std::size_t>(ranks); marks > 0;) {
      const auto rank = static_cast<int>(random_() % static_cast<unsigned>(ranks));
      Order& mine = left[static_cast<std::size_t>(rank)];
      if (mine.empty()) continue;
      write(rank, mine.back());
      test::mark(job_.engine(rank), group(rank), mine.back());
      mine.pop_back();
      --marks;
      job_.poll(random_() % 4);
    }
    ++step_;
    job_.run_until_idle();
    std::set<std::uint64_t> plans;
    for (const auto& group : groups_) {
      for (std::size_t g = 0; g < kSetSize; ++g) EXPECT_TRUE(group->wait_for(g, milliseconds(1)));
      EXPECT_TRUE(group->iterations().wait(milliseconds(1)));
      plans.insert(group->summary().hash);
    }
    EXPECT_EQ(plans.size(), 1u) << "ranks run different plans";
    std::vector<std::uint32_t> bits;
    for (std::size_t g = 0; g < kSetSize; ++g) {
      EXPECT_EQ(group(0).view(g).data, places_[g]) << "gradient " << g << " moved";
      for (const float value : values(0, g)) bits.push_back(std::bit_cast<std::uint32_t>(value));
    }
    return bits;
  }

  /// The same, with sums that are exact.
  void exact_step(const OrderOf& order_of) {
    step(order_of);
    for (int rank = 0; rank < job_.world_size(); ++rank) {
      for (std::size_t g = 0; g < kSetSize; ++g) {
        const std::span<const float> got = values(rank, g);
        ASSERT_EQ(std::vector<double>(got.begin(), got.end()), expected_[g])
            << "iteration " << step_ - 1 << ", rank " << rank << ", gradient " << g;
      }
    }
  }

 private:
  std::span<float> values(int rank, std::size_t gradient) {
    const BufferView& view = group(rank).view(gradient);
    return {static_cast<float*>(view.data), view.count};
  }

  void write(int rank, std::size_t gradient) {
    std::mt19937 random(static_cast<unsigned>((step_ * 100 + rank) * 100) +
                        static_cast<unsigned>(gradient));
    for (std::size_t i = 0; i < kElements; ++i) {
      const float value = static_cast<float>(static_cast<int>(random() % 129) - 64) * set_.unit;
      values(rank, gradient)[i] = value;
      expected_[gradient][i] += value;
    }
  }

  const OrderedSet set_;
  test::EngineJob job_;
  std::mt19937_64 random_;
  std::vector<std::vector<float>> memory_;
  std::vector<std::shared_ptr<GradientGroup>> groups_;
  std::vector<const void*> places_;
  std::vector<std::vector<double>> expected_;
  int step_ = 0;
};

OrderedJob::OrderOf always(const Order& order) {
  return [=](int, int) { return order; };
}

/// The plan of each iteration.
std::vector<std::uint64_t> plans_of(OrderedJob& job, const OrderedJob::OrderOf& order_of) {
  std::vector<std::uint64_t> plans;
  for (int i = 0; i < kMeasured + 3; ++i) {
    plans.push_back(job.plan().hash);
    job.exact_step(order_of);
  }
  return plans;
}

class MeasuredOrder : public testing::TestWithParam<std::vector<int>> {};

TEST_P(MeasuredOrder, AnotherOrderChangesThePlanOnceOnAllRanks) {
  for (const Memory memory : {Memory::kArena, Memory::kUser, Memory::kBoth}) {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      SCOPED_TRACE(testing::Message() << "memory " << static_cast<int>(memory) << " seed " << seed);
      OrderedJob job({.nodes = GetParam(), .memory = memory}, seed);
      EXPECT_EQ(job.plan().bucket_order, "registered");
      const auto plans = plans_of(job, always(late()));
      EXPECT_EQ(std::set(plans.begin(), plans.begin() + kMeasured).size(), 1u);
      EXPECT_EQ(std::set(plans.begin() + kMeasured, plans.end()).size(), 1u);
      EXPECT_NE(plans.front(), plans.back());
      EXPECT_EQ(job.plan().bucket_order, "measured");
    }
  }
}

TEST_P(MeasuredOrder, TheExpectedOrderKeepsThePlan) {
  OrderedJob job({.nodes = GetParam(), .memory = Memory::kBoth}, 5);
  const auto plans = plans_of(job, always(reversed()));
  EXPECT_EQ(std::set(plans.begin(), plans.end()).size(), 1u);
  EXPECT_EQ(job.plan().bucket_order, "registered");
}

TEST_P(MeasuredOrder, ARankOfAnotherOrderKeepsThePlan) {
  OrderedJob job({.nodes = GetParam()}, 6);
  const auto plans = plans_of(job, [](int rank, int) { return rank == 1 ? reversed() : late(); });
  EXPECT_EQ(std::set(plans.begin(), plans.end()).size(), 1u);
}

// Whatever that leads to, it is the same everywhere, and every sum is right.
TEST_P(MeasuredOrder, OrdersMayDifferFromRankToRankAndFromStepToStep) {
  for (const Memory memory : {Memory::kArena, Memory::kUser, Memory::kBoth}) {
    for (unsigned seed = 0; seed < kSeeds; ++seed) {
      SCOPED_TRACE(testing::Message() << "memory " << static_cast<int>(memory) << " seed " << seed);
      OrderedJob random({.nodes = GetParam(), .memory = memory}, seed);
      plans_of(random, [&](int rank, int iteration) {
        return shuffled(seed * 1000 + static_cast<unsigned>(rank * 100 + iteration));
      });
      OrderedJob alike({.nodes = GetParam(), .memory = memory}, seed);
      plans_of(alike, [&](int, int) { return shuffled(seed); });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, MeasuredOrder,
                         testing::Values(std::vector<int>{2}, std::vector<int>{1, 1, 1},
                                         std::vector<int>{2, 2}, std::vector<int>{2, 1}),
                         [](const auto& tested) {
                           std::string name = test::shape_text(tested.param);
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return "Nodes" + name;
                         });

// What "auto" says: where it measures, no bit tells.
TEST(MeasuredOrderBits, AreThoseOfTheRegisteredOrderWhereAutoMeasures) {
  struct Case {
    std::vector<int> nodes;
    std::string algorithm;
    GradientOptions gradients = {};
  };
  const GradientOptions with_weights = {.divisor = Divisor::kContributingRanks};
  const GradientOptions with_wire = {.op = ReduceOp::kSum, .wire_dtype = DType::kFloat16};
  for (const Case& each :
       {Case{{3}, "auto"}, Case{{3}, "auto", with_wire}, Case{{2, 1}, "direct", with_weights},
        Case{{2, 2}, "hierarchical:direct,direct"}}) {
    for (const Memory memory : {Memory::kArena, Memory::kBoth}) {
      SCOPED_TRACE(testing::Message() << test::shape_text(each.nodes) << " " << each.algorithm);
      const auto job_of = [&](const std::string& order, std::uint64_t seed) {
        return std::make_unique<OrderedJob>(OrderedSet{.nodes = each.nodes,
                                                       .options = options(order, each.algorithm),
                                                       .memory = memory,
                                                       .gradients = each.gradients,
                                                       .unit = 0.1F},
                                            seed);
      };
      const auto measured = job_of("auto", 1), registered = job_of("registered", 2);
      for (int i = 0; i < kMeasured + 3; ++i) {
        ASSERT_EQ(measured->step(always(late())), registered->step(always(late())))
            << "iteration " << i;
      }
      EXPECT_EQ(measured->plan().bucket_order, "measured");
      EXPECT_EQ(registered->plan().bucket_order, "registered");
    }
  }
}

TEST(MeasuredOrderBits, AutoKeepsThePlanWhereTheyMightDependOnIt) {
  OrderedJob job({.nodes = {1, 1, 1}, .options = options("auto", "ring")}, 3);
  const auto plans = plans_of(job, always(late()));
  EXPECT_EQ(std::set(plans.begin(), plans.end()).size(), 1u);
}

// Two threads of each rank mark, one of them the gradient that is ready last.
TEST(MeasuredOrderThreads, MarkWhileThePlanChanges) {
  Options measured = options("measured");
  measured.arena_bytes = std::size_t{1} << 22;
  test::RuntimeJob(3, measured).run([](Runtime& runtime) {
    std::vector<GradientSpec> specs;
    for (std::size_t g = 0; g < kSetSize; ++g) {
      specs.push_back({.name = "g" + std::to_string(g), .shape = {kElements}});
    }
    GradientSet set = runtime.register_gradients("model", specs, {.op = ReduceOp::kSum});
    const auto mark = [&](std::size_t g) {
      const BufferView view = set.view(g);
      std::ranges::fill(std::span(static_cast<float*>(view.data), view.count),
                        static_cast<float>(runtime.rank() + 1));
      set.ready(g);
    };
    for (int iteration = 0; iteration < 3 * kMeasured; ++iteration) {
      {
        const std::jthread other([&] { mark(0); });
        for (const std::size_t g : late()) {
          if (g != 0 && g != kSetSize - 1) mark(g);
        }
      }
      mark(kSetSize - 1);
      set.wait();
      for (std::size_t g = 0; g < kSetSize; ++g) {
        const BufferView view = set.view(g);
        for (const float value : std::span(static_cast<const float*>(view.data), view.count)) {
          test::require(value == 6.0F, "a sum is wrong");
        }
      }
    }
  });
}

}  // namespace
}  // namespace kolo
