#include "compression/sparse_all_reduce.h"

#include <optional>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/base/error.h"
#include "comm/verify/verifier.h"
#include "compression/compression_method.h"
#include "tests/compression/sparse_numbers.h"
#include "tests/support/node_shapes.h"
#include "tests/support/schedule_order.h"

namespace kolo {
namespace {

using testing::ElementsAre;

std::string text(const SparseOptions& options) {
  return std::string(options.method->name) + " " + std::string(to_string(options.route)) +
         ", rule " + std::to_string(static_cast<int>(options.rule)) + ", " +
         std::to_string(options.tensors[0].count) + " elements";
}

bool is_codec(const Step& step, CodecVerb verb) {
  return step.kind == StepKind::kCodec && step.verb == verb;
}

using Compile = Schedule (*)(int, const BucketLayout&, const ProcessGrid&, const SparseOptions&,
                             const CompileOptions&);

std::vector<Schedule> compile_all(const ProcessGrid& grid, const SparseOptions& options,
                                  Placement placement = Placement::kUser,
                                  Compile compile = compile_sparse) {
  const BucketLayout bucket = sparse_bucket(options, ReduceOp::kAverage, placement);
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    schedules.push_back(compile(rank, bucket, grid, options, {}));
  }
  return schedules;
}

/// The schedules of a bucket in device memory.
std::vector<Schedule> compile_on_device(const ProcessGrid& grid, const SparseOptions& options,
                                        Compile compile = compile_sparse,
                                        const CompileOptions& device = {}) {
  const BucketLayout bucket = sparse_device_bucket(options, ReduceOp::kAverage);
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    schedules.push_back(compile(rank, bucket, grid, options, device));
  }
  return schedules;
}

std::optional<std::string> verified(const std::vector<Schedule>& schedules,
                                    const ProcessGrid& grid) {
  return verify(schedules, grid, CollectiveSpec::all_reduce(grid.world_size()));
}

TEST(SparseSchedules, AreProvedForAllShapesRoutesAndRules) {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    test::for_each_node_shape(ranks, [&](const std::vector<int>& nodes) {
      const ProcessGrid grid = ProcessGrid::with_node_sizes(nodes);
      // An owner for every rank; fewer blocks than ranks; one element.
      for (const std::vector<std::size_t>& counts :
           {std::vector<std::size_t>{1000, 37}, {130}, {1}}) {
        for (const SparseOptions& options :
             test::all_ways_of_all_methods(test::options_of(counts, 0.1))) {
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

TEST(SparseSchedules, AreProvedInDeviceMemoryWithAndWithoutItsLibrary) {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    test::for_each_node_shape(ranks, [&](const std::vector<int>& nodes) {
      const ProcessGrid grid = ProcessGrid::with_node_sizes(nodes);
      for (const std::vector<std::size_t>& counts :
           {std::vector<std::size_t>{1000, 37}, {130}, {1}}) {
        std::vector<SparseOptions> ways = test::all_ways(test::options_of(counts, 0.1));
        SparseOptions coded = test::options_of(counts, 0.1);
        coded.method = &methods::int8;
        std::ranges::copy(test::all_ways(coded), std::back_inserter(ways));
        for (const SparseOptions& options : ways) {
          for (const bool spans_nodes : {true, false}) {
            for (const bool in_nodes : {true, false}) {
              if (!device_obstacle(grid, options, in_nodes).empty()) continue;
              const CompileOptions device{.native_spans_nodes = spans_nodes,
                                          .native_in_nodes = in_nodes};
              for (const Compile compile : {compile_sparse, compile_dense_step}) {
                EXPECT_EQ(verified(compile_on_device(grid, options, compile, device), grid),
                          std::nullopt)
                    << test::shape_text(nodes) << ", " << text(options);
              }
            }
          }
        }
      }
    });
  }
}

// All ranks of a node hold the same shards in both memories, so a checkpoint fits both.
TEST(SparseSchedules, InDeviceMemoryTheLibrarySumsInTheNodeAndPairsTravel) {
  const ProcessGrid grid = ProcessGrid::with_node_sizes({2, 2});
  const SparseOptions options = test::options_of({1000}, 0.1);
  const Schedule schedule = compile_on_device(grid, options)[3];
  std::size_t sends = 0;
  for (const Step& step : schedule.steps) {
    if (step.kind == StepKind::kSend) {
      ++sends;
      EXPECT_EQ(step.sources[0].region, Region::kPayload);
    }
    if (is_codec(step, CodecVerb::kSelect)) {
      EXPECT_EQ(step.sources[0], (Range{3, Region::kBucket, 512, 488}));
    }
    if (step.kind == StepKind::kNative && step.native == NativeOp::kReduceParts) {
      EXPECT_EQ(step.group, NativeGroup::kNode);
      EXPECT_EQ(step.sources[0].count, 512u);
      EXPECT_EQ(step.sources[1].count, 488u);
    }
  }
  EXPECT_EQ(sends, 2u);
  EXPECT_EQ(std::ranges::count(schedule.steps, StepKind::kNative, &Step::kind), 2);
  EXPECT_FALSE(schedule.eager);
  EXPECT_EQ(traffic(schedule, [](int peer) { return peer == 2; }).messages, 0u);
}

TEST(SparseSchedules, SayWhatStandsInTheWayOnADevice) {
  const ProcessGrid nodes = ProcessGrid::with_node_sizes({2, 2});
  SparseOptions options = test::options_of({1000}, 0.1);
  EXPECT_EQ(device_obstacle(nodes, options, true), "");
  EXPECT_NE(device_obstacle(nodes, options, false), "");
  EXPECT_THROW(compile_on_device(nodes, options, compile_sparse, {.native_in_nodes = false}),
               UsageError);
  options.scope = SparseScope::kFlat;
  EXPECT_EQ(device_obstacle(nodes, options, false), "");
  for (const CompressionMethod* const method : compression_methods()) {
    options.method = method;
    EXPECT_EQ(device_obstacle(nodes, options, true).empty(), method->on_device) << method->name;
  }
}

TEST(SparseSchedules, TwoLevelsWhereNodesAreEvenAndHaveSeveralRanks) {
  const SparseOptions options = test::options_of({1000}, 0.1);
  const auto layout = [&](std::vector<int> nodes, int rank) {
    return sparse_layout(rank, ProcessGrid::with_node_sizes(nodes), options);
  };
  EXPECT_THAT(layout({2, 2, 2}, 3).ranks, ElementsAre(1, 3, 5));
  EXPECT_EQ(layout({2, 2, 2}, 3).position, 1);
  EXPECT_EQ(layout({2, 2, 2}, 3).shard.offset, 512u);
  EXPECT_EQ(layout({2, 2, 2}, 3).plan.k, 49u);  // of 1000 - 512 elements
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
  const SparseOptions options = test::options_of({1000}, 0.1);
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
  const BucketLayout on_device = sparse_device_bucket(options, ReduceOp::kSum);
  EXPECT_NO_THROW(compile_sparse(0, on_device, grid, options));
  SparseOptions other = options;
  other.method = &methods::power_sgd;
  EXPECT_THROW(compile_sparse(0, on_device, grid, other), UsageError);
}

TEST(CompressedBuckets, AreFullButNeverCutATensor) {
  const std::size_t most = 100;
  EXPECT_THAT(compressed_buckets(std::vector<std::size_t>{}, most), ElementsAre());
  EXPECT_THAT(compressed_buckets(std::vector<std::size_t>{3 * most, 5, most - 5, 1}, most),
              ElementsAre(ElementsAre(0), ElementsAre(1, 2), ElementsAre(3)));
}

// The bytes that a schedule may send are those of the payload formulas, for any number of ranks.
TEST(SparseSchedules, PlanTheBytesOfTheFormula) {
  for (const int ranks : {2, 3, 8, 13}) {
    const ProcessGrid grid =
        ProcessGrid::with_node_sizes(std::vector<int>(static_cast<std::size_t>(ranks), 1));
    for (const QuotaRule rule : test::kRules) {
      SparseOptions options = test::options_of({50000, 3000}, 0.1);
      options.rule = rule;
      const SparsePlan plan = sparse_layout(0, grid, options).plan;
      const auto others = static_cast<std::size_t>(ranks - 1);
      const ScheduleTraffic pairwise = test::planned_exchange(0, grid, options);
      EXPECT_EQ(pairwise.messages, 2 * others);
      EXPECT_EQ(pairwise.bytes, others * (plan.share().capacity() + plan.result().capacity()));
      options.route = ExchangeRoute::kAllGather;
      const ScheduleTraffic gathered = test::planned_exchange(0, grid, options);
      EXPECT_EQ(gathered.messages, others);
      EXPECT_EQ(gathered.bytes, others * plan.contribution().capacity());
    }
  }
}

// --- Mutations ----------------------------------------------------------------------------------

void disarm(Step& step) {
  const int rank = step.sources.empty() ? step.target.rank : step.sources[0].rank;
  step = Step{.kind = StepKind::kCopy, .sources = {Range{.rank = rank}}, .after = step.after};
}

/// Damages one of the steps that fit.
struct Mutation {
  const char* name;
  bool (*fits)(const Step&);
  void (*damage)(Step&, Schedule&, std::mt19937&);
};

constexpr auto is_merge = [](const Step& step) { return is_codec(step, CodecVerb::kMerge); };
constexpr auto merges_several = [](const Step& step) {
  return is_merge(step) && step.sources.size() > 1;
};
constexpr auto swap_two = [](Step& step, Schedule&, std::mt19937&) {
  std::swap(step.sources[0], step.sources[1]);
};
constexpr auto drop = [](Step& step, Schedule&, std::mt19937&) { disarm(step); };

constexpr Mutation kMutations[] = {
    {"drop_step", [](const Step& step) { return step.kind == StepKind::kCodec; }, drop},
    {"drop_message",
     [](const Step& step) { return step.kind == StepKind::kSend || step.kind == StepKind::kRecv; },
     drop},
    {"forget_a_contribution", merges_several,
     [](Step& step, Schedule&, std::mt19937& random) {
       step.sources.erase(step.sources.begin() +
                          static_cast<std::ptrdiff_t>(random() % step.sources.size()));
     }},
    {"merge_in_another_order", merges_several, swap_two},
    {"merge_twice", is_merge,
     [](Step& step, Schedule&, std::mt19937&) { step.sources.push_back(step.sources.back()); }},
    {"refine_by_other_sums",
     [](const Step& step) {
       return is_codec(step, CodecVerb::kRefine) && step.sources.size() > 2 &&
              step.sources[1].count == step.sources[2].count;
     },
     [](Step& step, Schedule&, std::mt19937&) { std::swap(step.sources[1], step.sources[2]); }},
    {"refine_without_sums", [](const Step& step) { return is_codec(step, CodecVerb::kRefine); },
     [](Step& step, Schedule&, std::mt19937&) { step.sources.resize(1); }},
    // Swaps two payloads of equal length.
    {"mistake_payloads",
     [](const Step& step) {
       return is_codec(step, CodecVerb::kDecode) && step.sources.size() > 1 &&
              step.sources[0].count == step.sources[1].count;
     },
     swap_two},
    {"forget_scale", [](const Step& step) { return step.finishes; },
     [](Step& step, Schedule&, std::mt19937&) { step.finishes = false; }},
    {"send_a_part",
     [](const Step& step) {
       return step.kind == StepKind::kSend && step.sources[0].region == Region::kPayload &&
              step.sources[0].count > 1;
     },
     [](Step& step, Schedule&, std::mt19937&) { --step.sources[0].count; }},
    {"forget_pairs",
     [](const Step& step) {
       return is_codec(step, CodecVerb::kSelect) || is_codec(step, CodecVerb::kScatter);
     },
     [](Step& step, Schedule&, std::mt19937&) {
       --step.target.count;
       --step.sources[0].count;
     }},
    {"mistake_pairs",
     [](const Step& step) { return is_codec(step, CodecVerb::kSelect) && step.target.count > 1; },
     [](Step& step, Schedule&, std::mt19937&) {
       --step.target.count;
       --step.sources[0].count;
       ++step.sources[0].offset;
     }},
    {"encode_elements_of_a_device",
     [](const Step& step) {
       return is_codec(step, CodecVerb::kEncode) && step.sources[0].region == Region::kPairs;
     },
     [](Step& step, Schedule&, std::mt19937&) { step.sources[0].region = Region::kBucket; }},
    {"inspect_a_part", [](const Step& step) { return is_codec(step, CodecVerb::kInspect); },
     [](Step& step, Schedule&, std::mt19937&) { --step.sources[0].count; }},
    {"copy_pairs", [](const Step& step) { return is_codec(step, CodecVerb::kScatter); },
     [](Step& step, Schedule&, std::mt19937&) { step.kind = StepKind::kCopy; }},
    {"plan_too_little",
     [](const Step& step) {
       return step.kind == StepKind::kRecv && step.target.region == Region::kPayload;
     },
     [](Step& step, Schedule& schedule, std::mt19937&) {
       for (PayloadSlot& slot : schedule.payloads) {
         if (slot.offset == step.target.offset) --slot.capacity;
       }
     }}};

/// Returns false if there is no step of this kind to damage.
bool damage(const Mutation& mutation, std::vector<Schedule>& schedules, std::mt19937& random) {
  std::vector<std::pair<Schedule*, Step*>> found;
  for (Schedule& schedule : schedules) {
    for (Step& step : schedule.steps) {
      if (mutation.fits(step)) found.emplace_back(&schedule, &step);
    }
  }
  if (found.empty()) return false;
  const auto& [schedule, step] = found[random() % found.size()];
  mutation.damage(*step, *schedule, random);
  return true;
}

/// Drops one dependency that no other implies; returns false if there is none.
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
  constexpr std::size_t kCount = std::size(kMutations) + 1;  // the last one drops a dependency
  std::vector<std::size_t> damaged_by(kCount);
  const auto name = [](std::size_t m) {
    return m + 1 < kCount ? kMutations[m].name : "lose_dependency";
  };
  for (const std::vector<int>& nodes : {std::vector<int>{4}, {1, 1, 1, 1, 1}, {2, 2, 2}}) {
    const ProcessGrid grid = ProcessGrid::with_node_sizes(nodes);
    std::vector<SparseOptions> ways = test::all_ways(test::options_of({1800}, 0.1));
    ways.push_back(ways.front());
    ways.back().method = &methods::power_sgd;
    const std::size_t in_host_memory = ways.size();
    const std::vector<SparseOptions> on_device(ways.begin(), ways.end() - 1);  // not PowerSGD
    ways.insert(ways.end(), on_device.begin(), on_device.end());
    for (std::size_t way = 0; way < ways.size(); ++way) {
      const SparseOptions& options = ways[way];
      const std::vector<Schedule> correct =
          way < in_host_memory ? compile_all(grid, options) : compile_on_device(grid, options);
      ASSERT_EQ(verified(correct, grid), std::nullopt);
      for (std::size_t m = 0; m < kCount; ++m) {
        for (unsigned seed = 0; seed < 10; ++seed) {
          std::mt19937 random(seed);
          std::vector<Schedule> damaged = correct;
          if (!(m + 1 < kCount ? damage(kMutations[m], damaged, random)
                               : lose_dependency(damaged, grid, random))) {
            continue;
          }
          ++damaged_by[m];
          EXPECT_NE(verified(damaged, grid), std::nullopt)
              << name(m) << " seed " << seed << ", " << test::shape_text(nodes) << ", "
              << text(options);
        }
      }
    }
  }
  for (std::size_t m = 0; m < kCount; ++m) {
    EXPECT_GE(damaged_by[m], 20u) << name(m) << " finds nothing to damage";
  }
}

StepId fold_of(const Schedule& schedule) {
  const auto found = std::ranges::find_if(
      schedule.steps, [](const Step& step) { return is_codec(step, CodecVerb::kFold); });
  return static_cast<StepId>(found - schedule.steps.begin());
}

/// Adds a step that runs after the first `steps` steps and before the others.
void add_after(Schedule& schedule, std::size_t steps, Step added) {
  const auto last = static_cast<StepId>(schedule.steps.size());
  added.after.clear();
  for (StepId id = 0; id < last; ++id) {
    if (id < steps) added.after.push_back(id);
    if (id >= steps) schedule.steps[id].after.push_back(last);
  }
  schedule.steps.push_back(std::move(added));
}

TEST(SparseSchedules, DenseStepsFoldOnceBeforeTheSumAndInspectAfterIt) {
  for (const std::vector<int>& nodes : {std::vector<int>{2}, {1, 1, 1}, {2, 2}}) {
    const ProcessGrid grid = ProcessGrid::with_node_sizes(nodes);
    const std::vector<Schedule> correct =
        compile_all(grid, test::options_of({1000}, 0.1), Placement::kInPlace, compile_dense_step);
    EXPECT_EQ(verified(correct, grid), std::nullopt);
    const auto refused = [&](const char* what, auto change, std::size_t ranks = 1) {
      std::vector<Schedule> damaged = correct;
      for (std::size_t rank = 0; rank < ranks; ++rank) change(damaged[rank], correct[rank].steps);
      EXPECT_NE(verified(damaged, grid), std::nullopt) << what << ", " << test::shape_text(nodes);
    };
    const auto forget = [](Schedule& each, const auto&) { disarm(each.steps[fold_of(each)]); };
    const auto delay = [](Schedule& each, const auto& steps) {
      const StepId fold = fold_of(each);
      disarm(each.steps[fold]);
      add_after(each, steps.size(), steps[fold]);
    };
    refused("forgotten", forget);
    refused("forgotten by all", forget, correct.size());
    refused("late", delay, correct.size());
    refused("twice", [](Schedule& each, const auto& steps) {
      add_after(each, fold_of(each) + 1, steps[fold_of(each)]);
    });
    refused("inspected early", [](Schedule& each, const auto& steps) {
      disarm(each.steps.back());
      add_after(each, 0, steps.back());
    });
  }
}

}  // namespace
}  // namespace kolo
