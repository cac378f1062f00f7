// Gradient sets that travel sparsely, through the public interface: whole runtimes, one per thread.

#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "comm/rendezvous/memory_rendezvous.h"
#include "runtime/compression_state.h"
#include "runtime/kolo.h"
#include "tests/support/rank_harness.h"

namespace kolo {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Tensors = std::vector<std::vector<float>>;

std::vector<GradientSpec> model() {
  return {{.name = "first", .shape = {70, 80}},
          {.name = "bias", .shape = {80}},
          {.name = "second", .shape = {64, 90}}};
}

/// Small multiples of `unit`, a power of two, so that all sums are exact: of one rank and step.
Tensors gradients_of(int rank, std::size_t step, float unit = 0x1p-6f) {
  std::mt19937 random(static_cast<unsigned>(rank) * 1000u + static_cast<unsigned>(step));
  Tensors tensors;
  for (const GradientSpec& spec : model()) {
    std::vector<float>& tensor = tensors.emplace_back(spec.count());
    for (float& value : tensor) {
      value = static_cast<float>(static_cast<int>(random() % 129) - 64) * unit;
    }
  }
  return tensors;
}

struct Setting {
  std::string compression = "topk(0.05)";
  int ranks = 3;
  std::size_t fusion_bytes = std::size_t{1} << 20;
  ReduceOp op = ReduceOp::kSum;
};

/// One rank of a job with one registered set.
class Member {
 public:
  Member(Runtime& runtime, const Setting& setting)
      : runtime_(runtime),
        set_(runtime.register_gradients("model", model(),
                                        {.op = setting.op, .compression = setting.compression})) {}

  Runtime& runtime() { return runtime_; }
  GradientSet& set() { return set_; }

  /// The results of an iteration over these gradients.
  Tensors reduce(const Tensors& gradients) {
    for (std::size_t i = gradients.size(); i-- > 0;) {
      const BufferView view = set_.view(i);
      std::copy(gradients[i].begin(), gradients[i].end(), static_cast<float*>(view.data));
      set_.ready(i);
    }
    set_.wait();
    Tensors results;
    for (std::size_t i = 0; i < set_.size(); ++i) {
      const auto* const data = static_cast<const float*>(set_.view(i).data);
      results.emplace_back(data, data + set_.view(i).count);
    }
    return results;
  }
  Tensors reduce(std::size_t step) { return reduce(gradients_of(runtime_.rank(), step)); }

 private:
  Runtime& runtime_;
  GradientSet set_;
};

void run(const Setting& setting, const std::function<void(Member&)>& body) {
  auto endpoints = make_memory_rendezvous(setting.ranks, std::chrono::seconds(60));
  test::run_ranks(setting.ranks, [&](const test::RankRun& rank) {
    Runtime runtime(std::move(endpoints[static_cast<std::size_t>(rank.rank())]),
                    {.fusion_bytes = setting.fusion_bytes,
                     .arena_bytes = std::size_t{1} << 22,
                     .node_id = "a",
                     .mismatch_after = std::chrono::milliseconds(50)});
    Member member(runtime, setting);
    body(member);
  });
}

/// What rank 0 gets in each step.
std::vector<Tensors> results_of(const Setting& setting, std::size_t steps) {
  std::vector<Tensors> results;
  run(setting, [&](Member& member) {
    for (std::size_t step = 0; step < steps; ++step) {
      Tensors result = member.reduce(step);
      if (member.runtime().rank() == 0) results.push_back(std::move(result));
    }
  });
  return results;
}

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

void add(Tensors& sums, const Tensors& values) {
  if (sums.empty())
    sums = values;
  else
    for (std::size_t i = 0; i < sums.size(); ++i) {
      for (std::size_t j = 0; j < sums[i].size(); ++j) sums[i][j] += values[i][j];
    }
}

std::size_t nonzeros(const std::vector<float>& values) {
  return values.size() - static_cast<std::size_t>(std::count(values.begin(), values.end(), 0.0f));
}

TEST(CompressedSet, SendsAFewOfEachLargeTensorAndAllOfSmallOnes) {
  run({}, [](Member& member) {
    const Tensors result = member.reduce(std::size_t{0});
    const std::size_t kept = nonzeros(result[0]) + nonzeros(result[2]);
    require(kept > 0 && kept <= 570 + 3, "kept " + std::to_string(kept));
    require(nonzeros(result[1]) > 60, "the bias is not dense");
    const auto stats = member.set().compression_stats();
    require(stats.size() == 1, "groups");
    require(stats[0].k == 280 + 288, "k " + std::to_string(stats[0].k));
    require(stats[0].steps == 1 && stats[0].skipped_steps == 0, "steps");
    require(stats[0].residual_norm > 0 && stats[0].gradient_norm > 0, "norms");
    require(std::abs(stats[0].density - 0.05) < 1e-3, "density");
    require(member.set().is_sparse(0) && !member.set().is_sparse(1), "which are sparse");
    require(member.set().residual_norm("first").value() > 0, "norm of first");
    require(!member.set().residual_norm("bias"), "norm of bias");
  });
}

// What came and what is left add up to what was put in, element by element, after any number of
// steps; a flush brings all the rest.
TEST(CompressedSet, NothingIsLostOverStepsAndAFlushBringsTheRest) {
  for (const char* spec : {"topk(0.05)", "topk(0.05,rule=lossless)", "topk(0.02,rule=exact,bf16)",
                           "topk(0.05,route=allgather)", "topk(0.05,warmup=2,ramp=3)",
                           "block_topk(0.05,64,bf16)", "block_topk(0.05,16,warmup=2,ramp=3)"}) {
    SCOPED_TRACE(spec);
    constexpr std::size_t kSteps = 6;
    run({.compression = spec}, [](Member& member) {
      Tensors expected;
      Tensors sums;
      for (std::size_t step = 0; step <= kSteps; ++step) {
        for (int rank = 0; rank < member.runtime().world_size(); ++rank) {
          add(expected, gradients_of(rank, step));
        }
        if (step == kSteps) member.set().flush_residuals();
        add(sums, member.reduce(step));
        require(step == kSteps || sums != expected || step < 2, "nothing was left out");
      }
      require(sums == expected, "what came is not what was put in");
      require(member.set().residual_norm("first") == 0.0, "something is left");
    });
  }
}

TEST(CompressedSet, AtDensityOneTheBitsAreThoseOfTheDensePath) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
    const auto dense = results_of({.compression = "none", .op = op}, 3);
    EXPECT_EQ(results_of({.compression = "topk(1,fp32)", .op = op}, 3), dense);
    EXPECT_EQ(results_of({.compression = "block_topk(1,fp32)", .op = op}, 3), dense);
  }
}

TEST(CompressedSet, NeitherFusionNorRouteChangesABit) {
  const auto expected = results_of({.compression = "topk(0.05,route=owners)"}, 4);
  const auto blocks = results_of({.compression = "block_topk(0.05,64)"}, 4);
  for (const std::size_t fusion_bytes : std::initializer_list<std::size_t>{0, 1024, 1 << 26}) {
    EXPECT_EQ(
        results_of({.compression = "topk(0.05,route=owners)", .fusion_bytes = fusion_bytes}, 4),
        expected);
    EXPECT_EQ(results_of({.compression = "block_topk(0.05,64)", .fusion_bytes = fusion_bytes}, 4),
              blocks);
  }
  EXPECT_EQ(results_of({.compression = "block_topk(0.05,64,route=logstep)"}, 4), blocks);
  EXPECT_EQ(results_of({.compression = "topk(0.05,route=logstep)"}, 4), expected);
  EXPECT_EQ(results_of({.compression = "topk(0.05,route=allgather)"}, 4), expected);
}

/// Of a saved state, without its step number.
FeedbackState residuals(const GradientSet& set) {
  return compression_state_from(set.save_compression()).feedback;
}

// An infinity anywhere, in a sparse tensor or a dense one, on any rank, leaves every residual bit
// of every rank as it was; all see that the results are not finite, and the next step works.
TEST(CompressedSet, AStepThatIsNotFiniteLeavesNoTrace) {
  for (const std::size_t tensor : std::initializer_list<std::size_t>{0, 1, 2}) {
    for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      const char* const spec = bad == bad ? "topk(0.05)" : "block_topk(0.05,64)";
      run({.compression = spec}, [&](Member& member) {
        member.reduce(std::size_t{0});
        const auto before = residuals(member.set());
        Tensors gradients = gradients_of(member.runtime().rank(), 1);
        if (member.runtime().rank() == 1) gradients[tensor][17] = bad;
        const Tensors result = member.reduce(gradients);
        bool finite = true;
        for (const auto& values : result) {
          for (const float value : values) finite &= std::isfinite(value);
        }
        require(!finite, "the result looks finite");
        require(residuals(member.set()) == before, "a residual has changed");
        const auto stats = member.set().compression_stats();
        require(stats[0].skipped_steps == 1 && stats[0].steps == 2, "the step was not skipped");
        member.reduce(std::size_t{2});
        require(residuals(member.set()) != before, "the next step did nothing");
      });
    }
  }
}

// I12. What is beyond a float16 as it is shows whether exponents are part of the state.
TEST(CompressedSet, ASavedStateGoesOnBitForBit) {
  constexpr float kSmall = 0x1p-60f;
  for (const char* spec : {"topk(0.05)", "topk(0.05,dgc,warmup=1)", "first=topk(0.05),*=fp16",
                           "fp16", "block_topk(0.05,64,dgc,warmup=1)"}) {
    SCOPED_TRACE(spec);
    const Setting setting{.compression = spec};
    std::vector<Tensors> whole;
    std::vector<std::vector<std::byte>> states(static_cast<std::size_t>(setting.ranks));
    run(setting, [&](Member& member) {
      const int rank = member.runtime().rank();
      for (std::size_t step = 0; step < 7; ++step) {
        if (step == 4) states[static_cast<std::size_t>(rank)] = member.set().save_compression();
        Tensors result = member.reduce(gradients_of(rank, step, kSmall));
        if (rank == 0) whole.push_back(std::move(result));
      }
    });
    EXPECT_GT(nonzeros(whole[4][2]), 0u);
    run(setting, [&](Member& member) {
      const int rank = member.runtime().rank();
      member.set().load_compression(states[static_cast<std::size_t>(rank)]);
      for (std::size_t step = 4; step < 7; ++step) {
        require(member.reduce(gradients_of(rank, step, kSmall)) == whole[step],
                "step " + std::to_string(step) + " differs");
      }
    });
  }
}

// I12: what four ranks had not sent is worth as much among two or eight: after a flush, sums (and
// averages, by how they are divided) are what they would have been.
TEST(CompressedSet, AStateGoesOnAmongOtherRanks) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
    Setting setting{
        .compression = "second=topk(0.05),first=topk(0.02,dgc=0.5),*=fp16", .ranks = 4, .op = op};
    std::vector<std::vector<std::byte>> states(4);
    Tensors flushed;
    const auto nothing = [] {
      Tensors zeros;
      for (const GradientSpec& spec : model()) zeros.emplace_back(spec.count());
      return zeros;
    };
    run(setting, [&](Member& member) {
      const int rank = member.runtime().rank();
      for (std::size_t step = 0; step < 3; ++step) member.reduce(step);
      states[static_cast<std::size_t>(rank)] = member.set().save_compression();
      member.set().flush_residuals();
      Tensors result = member.reduce(nothing());
      if (rank == 0) flushed = std::move(result);
    });
    ASSERT_GT(nonzeros(flushed[0]), 0u);
    ASSERT_GT(nonzeros(flushed[2]), 0u);
    for (const int ranks : {1, 2, 4, 8}) {
      setting.ranks = ranks;
      run(setting, [&](Member& member) {
        member.set().remap_compression(states);
        member.set().flush_residuals();
        require(member.reduce(nothing()) == flushed, std::to_string(ranks) + " ranks");
      });
    }
  }
}

TEST(CompressedSet, WhatIsDroppedIsGone) {
  run({}, [](Member& member) {
    member.reduce(std::size_t{0});
    require(member.set().residual_norm("first").value() > 0, "nothing was left");
    member.set().drop_residuals();
    require(member.set().residual_norm("first") == 0.0, "something is left");
  });
}

TEST(CompressedSet, AStateOfAnotherSetIsRefused) {
  run({.ranks = 1}, [](Member& member) {
    const auto refused = [&](std::span<const std::byte> state) {
      try {
        member.set().load_compression(state);
        return false;
      } catch (const KoloError& e) {
        return e.error().code == ErrorCode::kData;
      }
    };
    std::vector<std::byte> state = member.set().save_compression();
    require(refused(std::span(state).first(3)), "three bytes");
    require(refused(std::span(state).first(state.size() - 1)), "truncated");
    require(!refused(state), "its own");
    const GradientSet other = member.runtime().register_gradients(
        "other", {{.name = "first", .shape = {64, 64}}}, {.compression = "topk(0.1)"});
    require(refused(other.save_compression()), "of another set");
  });
}

// Density one sends everything in every step, so that velocity and residual do what an optimizer's
// momentum would have done to dense gradients.
TEST(CompressedSet, MomentumIsCorrectedLikeTheOptimizers) {
  std::vector<Tensors> sent = results_of({.compression = "topk(0.05,fp32,dgc=0.5,warmup=9)"}, 4);
  const std::vector<Tensors> dense = results_of({.compression = "none"}, 4);
  std::vector<float> velocity(dense[0][0].size());
  for (std::size_t step = 0; step < dense.size(); ++step) {
    for (std::size_t j = 0; j < velocity.size(); ++j) {
      velocity[j] = 0.5f * velocity[j] + dense[step][0][j];
    }
    EXPECT_EQ(sent[step][0], velocity) << "step " << step;
    EXPECT_EQ(sent[step][1], dense[step][1]) << "step " << step;
  }
}

// Counted in iterations, also those that were skipped, and only for what is sparse later.
TEST(CompressedSet, TellsItsDenseStepsAtTheStart) {
  run({.compression = "topk(0.05,warmup=2,ramp=4)", .ranks = 2}, [&](Member& member) {
    for (std::size_t step = 0; step < 4; ++step) {
      EXPECT_EQ(member.set().is_warming_up(0), step < 2) << step;
      EXPECT_EQ(member.set().is_warming_up(2), step < 2) << step;
      EXPECT_FALSE(member.set().is_warming_up(1)) << "the bias is always dense";
      Tensors gradients = gradients_of(member.runtime().rank(), step);
      if (step == 0) gradients[0][0] = std::numeric_limits<float>::infinity();
      member.reduce(gradients);
    }
    // A flush is dense, and brings what has waited.
    member.set().flush_residuals();
    EXPECT_FALSE(member.set().is_warming_up(0));
    member.reduce(5);
  });
}

TEST(CompressedSet, WithoutFeedbackTheRestIsForgotten) {
  run({.compression = "topk(0.05,nofeedback)"}, [](Member& member) {
    member.reduce(std::size_t{0});
    require(member.set().residual_norm("first") == 0.0, "something is left");
  });
}

TEST(CompressedSet, RanksThatDisagreeAreToldTensorAndRank) {
  auto endpoints = make_memory_rendezvous(2, std::chrono::seconds(60));
  std::vector<std::string> texts(2);
  test::run_ranks(2, [&](const test::RankRun& rank) {
    Runtime runtime(std::move(endpoints[static_cast<std::size_t>(rank.rank())]),
                    {.arena_bytes = std::size_t{1} << 22,
                     .node_id = "a",
                     .mismatch_after = std::chrono::milliseconds(50)});
    const std::string spec = rank.rank() == 0 ? "topk(0.05,route=owners)" : "second=fp16";
    try {
      Member(runtime, {.compression = spec});
    } catch (const KoloError& e) {
      require(e.error().code == ErrorCode::kMismatch, e.what());
      texts[static_cast<std::size_t>(rank.rank())] = e.what();
    }
    Member agreed(runtime, {});
    agreed.reduce(std::size_t{0});
  });
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_THAT(texts[0], AllOf(HasSubstr("'first'"), HasSubstr("topk(0.05,route=owners)"),
                              HasSubstr("rank 1")));
}

/// The complete events of a rank's timeline, by name.
std::multimap<std::string, nlohmann::json> events_of(const std::filesystem::path& file) {
  std::multimap<std::string, nlohmann::json> events;
  for (const auto& event : nlohmann::json::parse(std::ifstream(file))) {
    if (event["ph"] == "X") events.emplace(event["name"], event);
  }
  return events;
}

TEST(CompressedSet, ATimelineTellsWhatEachStepDid) {
  const auto path =
      std::filesystem::path(testing::TempDir()) / ("timeline." + std::to_string(::getpid()));
  constexpr std::size_t kIterations = 3;
  std::vector<CompressionStats> last(2);
  auto endpoints = make_memory_rendezvous(2, std::chrono::seconds(60));
  test::run_ranks(2, [&](const test::RankRun& rank) {
    Runtime runtime(std::move(endpoints[static_cast<std::size_t>(rank.rank())]),
                    {.arena_bytes = std::size_t{1} << 22, .timeline = path, .node_id = "a"});
    Member member(runtime, {});
    for (std::size_t step = 0; step < kIterations; ++step) member.reduce(step);
    last[static_cast<std::size_t>(rank.rank())] = member.set().compression_stats()[0];
  });
  for (int rank = 0; rank < 2; ++rank) {
    const auto file = path.string() + "." + std::to_string(rank);
    const auto events = events_of(file);
    std::filesystem::remove(file);
    EXPECT_EQ(events.count("wait for 'model'"), kIterations);
    EXPECT_EQ(events.count("bucket 0 of 'model'"), kIterations);
    ASSERT_EQ(events.count("sparse step"), kIterations);
    for (const auto& [name, event] : events) EXPECT_GE(event["dur"], 0.0) << name;
    const CompressionStats& stats = last[static_cast<std::size_t>(rank)];
    const auto& arguments = std::prev(events.upper_bound("sparse step"))->second["args"];
    EXPECT_EQ(arguments["path"], stats.path);
    EXPECT_EQ(arguments["payload_bytes"], stats.payload_bytes);
    EXPECT_EQ(arguments["density"], stats.density);
    EXPECT_EQ(arguments["residual_norm"], stats.residual_norm);
    EXPECT_GT(arguments["predicted_ms"], 0.0);
    EXPECT_EQ(arguments["measured_ms"], stats.measured_ms);
  }
}

TEST(CompressedSet, CallsBelongBetweenIterations) {
  run({.ranks = 1}, [](Member& member) {
    member.set().ready(0);
    try {
      member.set().save_compression();
      throw std::runtime_error("no error");
    } catch (const UsageError&) {
    }
    member.set().ready(1);
    member.set().ready(2);
    member.set().wait();
  });
}

TEST(CompressedSet, OnOneNodeAutoIsDense) {
  run({.compression = "auto"}, [](Member& member) {
    require(!member.set().is_sparse(0), "not dense");
    require(member.set().plan().compression.empty(), member.set().plan().compression);
  });
}

}  // namespace
}  // namespace kolo
