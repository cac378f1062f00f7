// Tests gradients that some ranks lack in some iterations, by engines with seeded interleavings.

#include <gmock/gmock.h>

#include <cstring>
#include <numeric>
#include <random>
#include <span>

#include "compression/compression_spec.h"
#include "runtime/gradients/gradient_compression.h"
#include "tests/support/engine_job.h"
#include "tests/support/node_shapes.h"

namespace kolo {
namespace {

using test::EngineJob;

constexpr int kIterations = 3;
const std::vector<std::size_t> kElements = {5, 64, 1, 100, 33, 4160, 17, 4096};

/// Returns whether a rank lacks a gradient. Every rank lacks some gradients, and no rank lacks all.
bool is_absent(int rank, std::size_t gradient, int iteration) {
  return gradient == 2 || (static_cast<std::size_t>(rank + iteration) + gradient) % 3 == 0;
}

/// Returns the generator of a gradient's values.
std::mt19937 values_of(int rank, std::size_t gradient, int iteration) {
  return std::mt19937(static_cast<unsigned>((iteration * 100 + rank) * 100) +
                      static_cast<unsigned>(gradient));
}
float draw(std::mt19937& random) { return std::uniform_real_distribution<float>(-1, 1)(random); }

enum class Absence { kMarked, kZeroed };

struct Set {
  std::vector<int> nodes;
  std::string rules = "none";
  GradientOptions options = {};
  std::size_t fusion_bytes = 1U << 12;
  bool all_have_all = false;
  bool waits_for_each = false;  ///< Some more than once, before all.
};

/// A set on all ranks of a job. Even gradients are in the arena, odd ones in memory of the test.
class UnevenJob {
 public:
  UnevenJob(const Set& set, std::uint64_t seed)
      : all_have_all_(set.all_have_all),
        waits_for_each_(set.waits_for_each),
        job_(ProcessGrid::with_node_sizes(set.nodes),
             {.fusion_bytes = set.fusion_bytes,
              .algorithm = "direct",
              .chunk_bytes = 512,
              .verify_schedules = true},
             seed),
        random_(seed) {
    memory_.resize(static_cast<std::size_t>(job_.world_size()));
    for (int rank = 0; rank < job_.world_size(); ++rank) {
      std::vector<GradientSpec> specs;
      for (std::size_t count : kElements) {
        auto& mine = memory_[static_cast<std::size_t>(rank)].emplace_back(count);
        const std::size_t index = specs.size();
        // Gradients have two dimensions, so that large ones may be sparse.
        specs.push_back({.name = "g" + std::to_string(index), .shape = {count, 1}});
        if (count % 64 == 0) specs.back().shape = {count / 64, 64};
        if (index % 2 == 1) specs.back().data = mine.data();
      }
      resolve_compression(specs, CompressionRules::parse(set.rules));
      groups_.push_back(std::make_shared<GradientSetState>("model", specs, set.options));
      job_.engine(rank).submit(groups_.back());
    }
    job_.run_until_registered(groups_);
    for (const auto& group : groups_) group->registration().wait(std::chrono::milliseconds(1));
  }

  int world_size() const { return job_.world_size(); }
  GradientSetState& group(int rank) { return *groups_[static_cast<std::size_t>(rank)]; }
  std::span<float> values(int rank, std::size_t gradient) {
    const BufferView& view = group(rank).view(gradient);
    return {static_cast<float*>(view.data), view.count};
  }

  void run(int iteration, Absence absence) {
    for (int rank = 0; rank < world_size(); ++rank) {
      std::vector<std::size_t> order(kElements.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::ranges::shuffle(order, random_);
      for (const std::size_t gradient : order) mark(rank, gradient, iteration, absence);
    }
    job_.run_until_idle();
    for (const auto& group : groups_) {
      for (std::size_t i = 0; waits_for_each_ && i < 2 * kElements.size(); ++i) {
        ASSERT_TRUE(group->wait_for(random_() % kElements.size(), std::chrono::milliseconds(1)));
      }
      ASSERT_TRUE(group->wait(std::chrono::milliseconds(1)));
    }
  }

 private:
  void mark(int rank, std::size_t gradient, int iteration, Absence absence) {
    const std::span<float> mine = values(rank, gradient);
    if (all_have_all_ || !is_absent(rank, gradient, iteration)) {
      std::mt19937 random = values_of(rank, gradient, iteration);
      for (float& value : mine) value = draw(random);
      test::mark(job_.engine(rank), group(rank), gradient);
    } else if (absence == Absence::kZeroed) {
      std::ranges::fill(mine, 0.0f);
      test::mark(job_.engine(rank), group(rank), gradient);
    } else {
      std::ranges::fill(mine, std::numeric_limits<float>::quiet_NaN());
      test::mark_absent(job_.engine(rank), group(rank), gradient);
    }
  }

  const bool all_have_all_;
  const bool waits_for_each_;
  EngineJob job_;
  std::mt19937_64 random_;
  std::vector<std::vector<std::vector<float>>> memory_;  // by rank and gradient
  std::vector<std::shared_ptr<GradientSetState>> groups_;
};

/// The results and state of all ranks after all iterations.
struct Outcome {
  std::vector<float> results;
  std::vector<CompressionState> states;
};

Outcome outcome_of(const Set& set, Absence absence, std::uint64_t seed) {
  UnevenJob job(set, seed);
  Outcome outcome;
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    job.run(iteration, absence);
    for (std::size_t gradient = 0; gradient < kElements.size(); ++gradient) {
      const std::span<float> first = job.values(0, gradient);
      outcome.results.insert(outcome.results.end(), first.begin(), first.end());
      for (int rank = 1; rank < job.world_size(); ++rank) {
        EXPECT_EQ(std::memcmp(job.values(rank, gradient).data(), first.data(), first.size_bytes()),
                  0)
            << "rank " << rank << ", gradient " << gradient;
      }
    }
  }
  for (int rank = 0; rank < job.world_size(); ++rank) {
    outcome.states.push_back(job.group(rank).save_compression());
  }
  return outcome;
}

// On a float32 and a float16 wire, and sparse with residuals and momentum, results and later state
// are the same as with zeros.
TEST(AbsentGradients, CountAsZerosBitForBit) {
  const std::string sparse = "g5=topk(0.05,route=owners),g7=topk(0.05,dgc)";
  std::uint64_t seed = 0;
  for (const std::vector<int>& nodes : {std::vector<int>{1}, {3}, {1, 1, 1}, {2, 2}}) {
    for (const std::string& rules : {std::string("none"), sparse, std::string("*=fp16")}) {
      const Set set{.nodes = nodes, .rules = rules};
      SCOPED_TRACE(test::shape_text(nodes) + " " + rules);
      const Outcome zeroed = outcome_of(set, Absence::kZeroed, ++seed);
      const Outcome marked = outcome_of(set, Absence::kMarked, ++seed);
      ASSERT_EQ(marked.results.size(), zeroed.results.size());
      EXPECT_EQ(std::memcmp(marked.results.data(), zeroed.results.data(),
                            zeroed.results.size() * sizeof(float)),
                0);
      ASSERT_EQ(marked.states.size(), zeroed.states.size());
      EXPECT_EQ(marked.states[0].feedback.tensors.empty(), rules != sparse);
      for (std::size_t rank = 0; rank < marked.states.size(); ++rank) {
        EXPECT_TRUE(marked.states[rank] == zeroed.states[rank]) << "rank " << rank;
      }
    }
  }
}

TEST(AbsentGradients, ChangeNoMinimumMaximumOrProduct) {
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProd}) {
    UnevenJob job({.nodes = {2, 1}, .options = {.op = op}}, 1);
    job.run(0, Absence::kMarked);
    for (std::size_t gradient = 0; gradient < kElements.size(); ++gradient) {
      float expected = op == ReduceOp::kProd  ? 1.0f
                       : op == ReduceOp::kMin ? std::numeric_limits<float>::infinity()
                                              : -std::numeric_limits<float>::infinity();
      for (int rank = 0; rank < 3; ++rank) {
        if (is_absent(rank, gradient, 0)) continue;
        std::mt19937 random = values_of(rank, gradient, 0);
        const float value = draw(random);
        expected = op == ReduceOp::kProd  ? expected * value
                   : op == ReduceOp::kMin ? std::min(expected, value)
                                          : std::max(expected, value);
      }
      EXPECT_EQ(job.values(1, gradient)[0], expected) << to_string(op) << " of " << gradient;
    }
  }
}

double samples_of(int rank, int iteration) { return 2.5 * ((rank + iteration) % 3); }

// The divisor may be zero samples, and a gradient may be on no rank.
TEST(Divisors, AreTheRanksOrSamplesThatHaveAGradient) {
  std::uint64_t seed = 0;
  for (const std::vector<int>& nodes : {std::vector<int>{1}, {3}, {1, 1, 1}, {2, 2}}) {
    for (const Divisor divisor : {Divisor::kContributingRanks, Divisor::kSamples}) {
      for (const bool on_wire : {false, true}) {
        SCOPED_TRACE(test::shape_text(nodes) + " " + std::string(to_string(divisor)));
        UnevenJob job(
            {.nodes = nodes, .rules = on_wire ? "*=fp16" : "none", .options = {.divisor = divisor}},
            ++seed);
        for (int iteration = 0; iteration < kIterations; ++iteration) {
          const auto weight = [&](int rank) {
            return divisor == Divisor::kSamples ? samples_of(rank, iteration) : 1.0;
          };
          for (int rank = 0; divisor == Divisor::kSamples && rank < job.world_size(); ++rank) {
            job.group(rank).set_samples(weight(rank));
          }
          job.run(iteration, Absence::kMarked);
          for (std::size_t gradient = 0; gradient < kElements.size(); ++gradient) {
            std::vector<double> sum(kElements[gradient]);
            double weights = 0;
            for (int rank = 0; rank < job.world_size(); ++rank) {
              if (is_absent(rank, gradient, iteration)) continue;
              std::mt19937 random = values_of(rank, gradient, iteration);
              for (double& value : sum) value += weight(rank) * static_cast<double>(draw(random));
              weights += weight(rank);
            }
            const double bound = on_wire ? 1e-2 : 1e-6;
            for (std::size_t i = 0; i < sum.size(); ++i) {
              const double expected = weights > 0 ? sum[i] / weights : 0;
              ASSERT_NEAR(static_cast<double>(job.values(0, gradient)[i]), expected, bound)
                  << "gradient " << gradient << ", element " << i << ", iteration " << iteration;
            }
            for (int rank = 1; rank < job.world_size(); ++rank) {
              ASSERT_EQ(std::memcmp(job.values(rank, gradient).data(),
                                    job.values(0, gradient).data(), sum.size() * sizeof(float)),
                        0);
            }
          }
        }
      }
    }
  }
}

TEST(Divisors, DoNotMatterWhereAllRanksHaveAll) {
  for (const char* rules : {"none", "*=fp16"}) {
    Set set{.nodes = {2, 1}, .rules = rules, .all_have_all = true};
    const std::vector<float> of_all = outcome_of(set, Absence::kMarked, 1).results;
    set.options.divisor = Divisor::kContributingRanks;
    EXPECT_EQ(outcome_of(set, Absence::kMarked, 2).results, of_all);
  }
}

// Gradients that are waited for one by one are divided once, and residuals are as usual.
TEST(Divisors, AreTheSameWhereGradientsAreWaitedForOneByOne) {
  for (const Divisor divisor : {Divisor::kAllRanks, Divisor::kContributingRanks}) {
    for (const char* rules : {"none", "g5=topk(0.05,route=owners)"}) {
      Set set{.nodes = {2, 1}, .rules = rules, .options = {.divisor = divisor}};
      const Outcome at_once = outcome_of(set, Absence::kMarked, 1);
      set.waits_for_each = true;
      const Outcome one_by_one = outcome_of(set, Absence::kMarked, 2);
      EXPECT_EQ(one_by_one.results, at_once.results);
      EXPECT_TRUE(one_by_one.states == at_once.states);
    }
  }
}

TEST(Divisors, AreNotInTheSummary) {
  UnevenJob plain({.nodes = {2}}, 1),
      divided({.nodes = {2}, .options = {.divisor = Divisor::kContributingRanks}}, 1);
  EXPECT_EQ(divided.group(0).summary().gradients, kElements.size());
  EXPECT_EQ(divided.group(0).summary().bytes, plain.group(0).summary().bytes);
}

}  // namespace
}  // namespace kolo
