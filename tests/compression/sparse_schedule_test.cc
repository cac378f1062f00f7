#include "compression/sparse_all_reduce.h"

#include <optional>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/base/error.h"
#include "comm/schedule/payload_join.h"
#include "comm/verify/verifier.h"
#include "compression/sparse_steps.h"
#include "tests/support/node_shapes.h"
#include "tests/support/schedule_order.h"

namespace kolo {
namespace {

using testing::ElementsAre;

constexpr ExchangeRoute kRoutes[] = {ExchangeRoute::kAllGather, ExchangeRoute::kPairwise,
                                     ExchangeRoute::kLogStep};
constexpr QuotaRule kRules[] = {QuotaRule::kQuota, QuotaRule::kLossless};

SparseOptions options_of(std::vector<std::size_t> counts, ExchangeRoute route, QuotaRule rule) {
  SparseOptions options{.density = 0.1, .route = route, .rule = rule};
  for (const std::size_t count : counts) {
    options.tensors.push_back(
        {.name = "t" + std::to_string(options.tensors.size()), .count = count});
  }
  return options;
}

/// Every route and rule.
std::vector<SparseOptions> all_ways(const std::vector<std::size_t>& counts) {
  std::vector<SparseOptions> ways;
  for (const ExchangeRoute route : kRoutes) {
    for (const QuotaRule rule : kRules) ways.push_back(options_of(counts, route, rule));
  }
  return ways;
}

std::string text(const SparseOptions& options) {
  return std::string(to_string(options.route)) + ", rule " +
         std::to_string(static_cast<int>(options.rule)) + ", " +
         std::to_string(options.tensors[0].count) + " elements";
}

using Compile = Schedule (*)(int, const BucketLayout&, const ProcessGrid&, const SparseOptions&);

std::vector<Schedule> compile_all(const ProcessGrid& grid, const SparseOptions& options,
                                  Placement placement = Placement::kUser,
                                  Compile compile = compile_sparse) {
  const BucketLayout bucket = sparse_bucket(options, ReduceOp::kAverage, placement);
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    schedules.push_back(compile(rank, bucket, grid, options));
  }
  return schedules;
}

std::optional<std::string> verified(const std::vector<Schedule>& schedules,
                                    const ProcessGrid& grid) {
  return verify(schedules, grid, Goal::all_reduce(grid.world_size()));
}

TEST(SparseSchedules, AreProvedForAllShapesRoutesAndRules) {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    test::for_each_node_shape(ranks, [&](const std::vector<int>& nodes) {
      const ProcessGrid grid = ProcessGrid::with_node_sizes(nodes);
      // One with an owner for every rank; one that has fewer blocks than ranks; one element.
      for (const std::vector<std::size_t>& counts :
           {std::vector<std::size_t>{1000, 37}, {130}, {1}}) {
        for (const SparseOptions& options : all_ways(counts)) {
          for (const Placement placement : {Placement::kUser, Placement::kInPlace}) {
            for (const Compile compile : {compile_sparse, compile_dense_step}) {
              EXPECT_EQ(verified(compile_all(grid, options, placement, compile), grid),
                        std::nullopt)
                  << test::shape_text(nodes) << ", " << text(options);
            }
          }
        }
      }
    });
  }
}

TEST(SparseSchedules, TwoLevelsWhereNodesAreEvenAndHaveSeveralRanks) {
  const SparseOptions options = options_of({1000}, ExchangeRoute::kPairwise, QuotaRule::kQuota);
  const auto layout = [&](std::vector<int> nodes, int rank) {
    return sparse_layout(rank, ProcessGrid::with_node_sizes(nodes), options);
  };
  EXPECT_THAT(layout({2, 2, 2}, 3).ranks, ElementsAre(1, 3, 5));
  EXPECT_EQ(layout({2, 2, 2}, 3).position, 1);
  EXPECT_EQ(layout({2, 2, 2}, 3).shard.offset, 512u);
  EXPECT_EQ(layout({2, 2, 2}, 3).plan.k, 49u);  // Of 1000 - 512 elements.
  EXPECT_EQ(layout({2, 2, 2}, 3).parts[0].first, 512u);
  for (const std::vector<int>& nodes : {std::vector<int>{4}, {1, 1, 1, 1}, {3, 1}}) {
    EXPECT_FALSE(layout(nodes, 0).is_two_level) << test::shape_text(nodes);
    EXPECT_EQ(layout(nodes, 0).plan.ranks, 4);
  }
  SparseOptions flat = options;
  flat.scope = SparseScope::kFlat;
  EXPECT_FALSE(sparse_layout(0, ProcessGrid::with_node_sizes({2, 2}), flat).is_two_level);
}

TEST(SparseSchedules, RefuseOtherBuckets) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2});
  const SparseOptions options = options_of({1000}, ExchangeRoute::kPairwise, QuotaRule::kQuota);
  const BucketLayout good = sparse_bucket(options, ReduceOp::kSum, Placement::kUser);
  const auto refused = [&](auto change) {
    BucketLayout bucket = good;
    change(bucket);
    EXPECT_THROW(compile_sparse(0, bucket, grid, options), UsageError);
  };
  refused([](BucketLayout& bucket) { bucket.count += 16; });
  refused([](BucketLayout& bucket) { bucket.dtype = DType::kFloat16; });
  refused([](BucketLayout& bucket) { bucket.op = ReduceOp::kMax; });
  refused([](BucketLayout& bucket) { bucket.placement = Placement::kStaged; });
  refused([](BucketLayout& bucket) { bucket.memory = MemoryKind::kDevice; });
}

TEST(CompressionGroups, AreFullButNeverCutATensor) {
  const std::size_t most = kGroupElements;
  EXPECT_THAT(compression_groups(std::vector<std::size_t>{}), ElementsAre());
  EXPECT_THAT(compression_groups(std::vector<std::size_t>{3 * most, 5, most - 5, 1}),
              ElementsAre(ElementsAre(0), ElementsAre(1, 2), ElementsAre(3)));
}

// I13: what a schedule may send at most, by the formulas of payloads, for any number of ranks.
TEST(SparseSchedules, PlanTheBytesOfTheFormula) {
  for (const int ranks : {2, 3, 8, 13}) {
    const ProcessGrid grid =
        ProcessGrid::with_node_sizes(std::vector<int>(static_cast<std::size_t>(ranks), 1));
    for (const QuotaRule rule : kRules) {
      SparseOptions options = options_of({50000, 3000}, ExchangeRoute::kPairwise, rule);
      const SparsePlan plan = sparse_layout(0, grid, options).plan;
      const auto others = static_cast<std::size_t>(ranks - 1);
      const ScheduleTraffic pairwise = planned_exchange(0, grid, options);
      EXPECT_EQ(pairwise.messages, 2 * others);
      EXPECT_EQ(pairwise.bytes, others * (plan.share().capacity() + plan.result().capacity()));
      options.route = ExchangeRoute::kAllGather;
      const ScheduleTraffic gathered = planned_exchange(0, grid, options);
      EXPECT_EQ(gathered.messages, others);
      EXPECT_EQ(gathered.bytes, others * plan.contribution().capacity());
      options.route = ExchangeRoute::kLogStep;
      const auto rounds = static_cast<std::size_t>(log_step_rounds(ranks));
      std::size_t passed = 0;  // Shares, over all rounds.
      for (int round = 0; round < log_step_rounds(ranks); ++round) {
        passed += log_step_forwards(ranks, 0, round).size();
      }
      const ScheduleTraffic stepwise = planned_exchange(0, grid, options);
      EXPECT_EQ(stepwise.messages, 2 * rounds);
      EXPECT_EQ(stepwise.bytes, passed * joined_bytes(plan.share().capacity()) +
                                    others * joined_bytes(plan.result().capacity()) +
                                    2 * rounds * kJoinedHeaderBytes);
    }
  }
}

// --- Mutations ----------------------------------------------------------------------------------

/// Damages a correct set of schedules; returns false if there is nothing of the kind to damage.
using Mutation = bool (*)(std::vector<Schedule>&, const ProcessGrid&, std::mt19937&);

template <typename Eligible>
Step* pick(std::vector<Schedule>& schedules, std::mt19937& random, Eligible eligible) {
  std::vector<Step*> found;
  for (Schedule& schedule : schedules) {
    for (Step& step : schedule.steps) {
      if (eligible(step)) found.push_back(&step);
    }
  }
  return found.empty() ? nullptr : found[random() % found.size()];
}

bool is_codec(const Step& step, CodecVerb verb) {
  return step.kind == StepKind::kCodec && step.verb == verb;
}

void disarm(Step& step) {
  const int rank = step.sources.empty() ? step.target.rank : step.sources[0].rank;
  step = Step{.kind = StepKind::kCopy, .sources = {Range{.rank = rank}}, .after = step.after};
}

bool drop_step(std::vector<Schedule>& schedules, const ProcessGrid&, std::mt19937& random) {
  Step* const step = pick(schedules, random, [](const Step& candidate) {
    return candidate.kind == StepKind::kCodec && candidate.verb != CodecVerb::kInspect;
  });
  if (step == nullptr) return false;
  disarm(*step);
  return true;
}

bool drop_message(std::vector<Schedule>& schedules, const ProcessGrid&, std::mt19937& random) {
  Step* const step = pick(schedules, random, [](const Step& candidate) {
    return candidate.kind == StepKind::kSend || candidate.kind == StepKind::kRecv;
  });
  if (step == nullptr) return false;
  disarm(*step);
  return true;
}

bool forget_a_contribution(std::vector<Schedule>& schedules, const ProcessGrid&,
                           std::mt19937& random) {
  Step* const step = pick(schedules, random, [](const Step& candidate) {
    return is_codec(candidate, CodecVerb::kMerge);
  });
  if (step == nullptr || step->sources.size() < 2) return false;
  step->sources.erase(step->sources.begin() +
                      static_cast<std::ptrdiff_t>(random() % step->sources.size()));
  return true;
}

bool merge_in_another_order(std::vector<Schedule>& schedules, const ProcessGrid&,
                            std::mt19937& random) {
  Step* const step = pick(schedules, random, [](const Step& candidate) {
    return is_codec(candidate, CodecVerb::kMerge);
  });
  if (step == nullptr || step->sources.size() < 2) return false;
  std::swap(step->sources[0], step->sources[1]);
  return true;
}

bool merge_twice(std::vector<Schedule>& schedules, const ProcessGrid&, std::mt19937& random) {
  Step* const step = pick(schedules, random, [](const Step& candidate) {
    return is_codec(candidate, CodecVerb::kMerge);
  });
  if (step == nullptr) return false;
  step->sources.push_back(step->sources.back());
  return true;
}

/// Two payloads of one length change places on their way.
bool mistake_payloads(std::vector<Schedule>& schedules, const ProcessGrid&, std::mt19937& random) {
  Step* const step = pick(schedules, random, [](const Step& candidate) {
    return (is_codec(candidate, CodecVerb::kJoin) || is_codec(candidate, CodecVerb::kDecode)) &&
           candidate.sources.size() > 1 && candidate.sources[0].count == candidate.sources[1].count;
  });
  if (step == nullptr) return false;
  std::swap(step->sources[0], step->sources[1]);
  return true;
}

bool forget_scale(std::vector<Schedule>& schedules, const ProcessGrid&, std::mt19937& random) {
  Step* const step =
      pick(schedules, random, [](const Step& candidate) { return candidate.finishes; });
  if (step == nullptr) return false;
  step->finishes = false;
  return true;
}

bool send_a_part(std::vector<Schedule>& schedules, const ProcessGrid&, std::mt19937& random) {
  Step* const step = pick(schedules, random, [](const Step& candidate) {
    return candidate.kind == StepKind::kSend && candidate.sources[0].region == Region::kPayload &&
           candidate.sources[0].count > 1;
  });
  if (step == nullptr) return false;
  --step->sources[0].count;
  return true;
}

bool plan_too_little(std::vector<Schedule>& schedules, const ProcessGrid&, std::mt19937& random) {
  Step* const step = pick(schedules, random, [](const Step& candidate) {
    return candidate.kind == StepKind::kRecv && candidate.target.region == Region::kPayload;
  });
  if (step == nullptr) return false;
  for (PayloadSlot& slot : schedules[static_cast<std::size_t>(step->target.rank)].payloads) {
    if (slot.offset == step->target.offset) --slot.capacity;
  }
  return true;
}

/// Loses one dependency that nothing else stands for.
bool lose_dependency(std::vector<Schedule>& schedules, const ProcessGrid& grid,
                     std::mt19937& random) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    const int rank = static_cast<int>(random() % schedules.size());
    auto& steps = schedules[static_cast<std::size_t>(rank)].steps;
    const auto id = static_cast<StepId>(random() % steps.size());
    Step& step = steps[id];
    if (step.kind != StepKind::kCodec || step.after.empty()) continue;
    const std::size_t index = random() % step.after.size();
    const StepId earlier = step.after[index];
    step.after.erase(step.after.begin() + static_cast<std::ptrdiff_t>(index));
    if (!test::ordered(schedules, grid, {rank, earlier}, {rank, id})) return true;
    step.after.push_back(earlier);
  }
  return false;
}

TEST(SparseSchedules, MutationsAreCaught) {
  const std::pair<const char*, Mutation> mutations[] = {
      {"drop_step", drop_step},
      {"drop_message", drop_message},
      {"forget_a_contribution", forget_a_contribution},
      {"merge_in_another_order", merge_in_another_order},
      {"merge_twice", merge_twice},
      {"mistake_payloads", mistake_payloads},
      {"forget_scale", forget_scale},
      {"send_a_part", send_a_part},
      {"plan_too_little", plan_too_little},
      {"lose_dependency", lose_dependency}};
  std::vector<std::size_t> damaged_by(std::size(mutations));
  for (const std::vector<int>& nodes : {std::vector<int>{4}, {1, 1, 1, 1, 1}, {2, 2, 2}}) {
    const ProcessGrid grid = ProcessGrid::with_node_sizes(nodes);
    for (const SparseOptions& options : all_ways({1800})) {
      const std::vector<Schedule> correct = compile_all(grid, options);
      ASSERT_EQ(verified(correct, grid), std::nullopt);
      for (std::size_t m = 0; m < std::size(mutations); ++m) {
        for (unsigned seed = 0; seed < 10; ++seed) {
          std::mt19937 random(seed);
          std::vector<Schedule> damaged = correct;
          if (!mutations[m].second(damaged, grid, random)) continue;
          ++damaged_by[m];
          EXPECT_NE(verified(damaged, grid), std::nullopt)
              << mutations[m].first << " seed " << seed << ", " << test::shape_text(nodes) << ", "
              << text(options);
        }
      }
    }
  }
  for (std::size_t m = 0; m < std::size(mutations); ++m) {
    EXPECT_GT(damaged_by[m], 20u) << mutations[m].first << " finds nothing to damage";
  }
}

}  // namespace
}  // namespace kolo
