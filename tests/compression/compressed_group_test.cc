#include "compression/compressed_group.h"

#include <bit>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/base/error.h"
#include "comm/collective/reduce_kernels.h"
#include "comm/schedule/payload_join.h"
#include "compression/kernels/block_energy.h"
#include "compression/value_codec.h"
#include "tests/compression/compressed_job.h"
#include "tests/compression/simulated_exchange.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/node_shapes.h"
#include "tests/support/rank_harness.h"

namespace kolo {
namespace {

using test::CompressedJob;
using test::Tensors;

constexpr std::uint32_t kSeed = 97;
constexpr ExchangeRoute kRoutes[] = {ExchangeRoute::kPairwise, ExchangeRoute::kLogStep,
                                     ExchangeRoute::kAllGather};
constexpr QuotaRule kRules[] = {QuotaRule::kQuota, QuotaRule::kGlobalExact, QuotaRule::kLossless};
constexpr std::size_t kBlocks[] = {0, 32};  ///< 0: pairs.
constexpr DType kWires[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

template <typename T, std::size_t N>
T any_of(std::mt19937& random, const T (&choices)[N]) {
  return choices[random() % N];
}

SparseOptions options_of(const std::vector<std::size_t>& counts, double density) {
  SparseOptions options{.density = density};
  for (const std::size_t count : counts) {
    options.tensors.push_back(
        {.name = "t" + std::to_string(options.tensors.size()), .count = count});
  }
  return options;
}

std::string text(const SparseOptions& options, const std::vector<int>& nodes) {
  std::string result = test::shape_text(nodes) + ", " + std::string(to_string(options.route)) +
                       ", block " + std::to_string(options.block) + ", rule " +
                       std::to_string(static_cast<int>(options.rule)) + ", wire " +
                       std::string(to_string(options.wire)) + " and " +
                       std::string(to_string(options.result_wire)) + ", density " +
                       std::to_string(options.density) + ", tensors";
  for (const FeedbackTensor& tensor : options.tensors) result += " " + std::to_string(tensor.count);
  return result + ", seed " + std::to_string(kSeed);
}

float lattice(std::mt19937& random) {
  return static_cast<float>(static_cast<int>(random() % 2001) - 1000) * 0x1p-6f;
}
float normal(std::mt19937& random) { return std::normal_distribution<float>()(random); }

std::vector<Tensors> gradients_of(std::mt19937& random, const SparseOptions& options, int ranks,
                                  float (*number)(std::mt19937&)) {
  std::vector<Tensors> gradients(static_cast<std::size_t>(ranks));
  for (Tensors& own : gradients) {
    for (const FeedbackTensor& tensor : options.tensors) {
      own.emplace_back(tensor.count);
      for (float& value : own.back()) value = number(random);
    }
  }
  return gradients;
}

std::vector<std::uint32_t> bits_of(std::span<const float> values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}
std::vector<std::uint32_t> bits_of(const Tensors& tensors) {
  std::vector<std::uint32_t> bits;
  for (const auto& tensor : tensors) {
    const auto own = bits_of(std::span(tensor));
    bits.insert(bits.end(), own.begin(), own.end());
  }
  return bits;
}

std::vector<std::uint32_t> residual_bits(CompressedJob& job) {
  std::vector<std::uint32_t> bits;
  for (int rank = 0; rank < job.size(); ++rank) {
    for (const FeedbackState::Tensor& tensor : job.group(rank).save().tensors) {
      for (const auto& values : {tensor.residual, tensor.velocity}) {
        const auto own = bits_of(std::span(values));
        bits.insert(bits.end(), own.begin(), own.end());
      }
    }
  }
  return bits;
}

using Sums = std::vector<std::vector<double>>;  ///< Per tensor, exact for lattice numbers.

Sums zeros(const SparseOptions& options) {
  Sums sums;
  for (const FeedbackTensor& tensor : options.tensors) sums.emplace_back(tensor.count);
  return sums;
}
void add(Sums& sums, const Tensors& values, double factor) {
  for (std::size_t t = 0; t < sums.size(); ++t) {
    for (std::size_t i = 0; i < sums[t].size(); ++i) sums[t][i] += factor * double{values[t][i]};
  }
}
Sums residual_sums(CompressedJob& job, const SparseOptions& options) {
  Sums sums = zeros(options);
  for (int rank = 0; rank < job.size(); ++rank) {
    const FeedbackState state = job.group(rank).save();
    for (std::size_t p = 0; p < state.tensors.size(); ++p) {
      const SparsePart& part = job.group(rank).parts()[p];
      for (std::size_t i = 0; i < part.count; ++i) {
        sums[part.tensor][part.first + i] += double{state.tensors[p].residual[i]};
      }
    }
  }
  return sums;
}

/// As many ranks as keep 1 / ranks a power of two, so that averages of lattice numbers are exact.
std::vector<int> any_nodes(std::mt19937& random) {
  const std::vector<int> shapes[] = {{1}, {2}, {4}, {1, 1}, {2, 2}, {4, 4}, {2, 2, 2, 2}, {3, 1}};
  return shapes[random() % std::size(shapes)];
}

/// Pairs by every route and rule, and blocks of some sizes by every route that they take.
std::vector<SparseOptions> all_ways(const SparseOptions& options) {
  std::vector<SparseOptions> ways;
  for (const ExchangeRoute route : kRoutes) {
    SparseOptions way = options;
    way.route = route;
    for (const QuotaRule rule : kRules) ways.emplace_back(way).rule = rule;
    if (route == ExchangeRoute::kAllGather) continue;
    for (const std::size_t block : std::initializer_list<std::size_t>{16, 48, 256}) {
      ways.emplace_back(way).block = block;
    }
  }
  return ways;
}

SparseOptions any_options(std::mt19937& random) {
  std::vector<std::size_t> counts(1 + random() % 3);
  for (std::size_t& count : counts) count = 1 + random() % 2000;
  SparseOptions options = options_of(counts, any_of(random, {0.01, 0.1, 0.5, 1.0}));
  options.wire = any_of(random, kWires);
  options.result_wire = any_of(random, kWires);
  options.scope = any_of(random, {SparseScope::kBetweenNodes, SparseScope::kFlat});
  const std::vector<SparseOptions> ways = all_ways(options);
  return ways[random() % ways.size()];
}

Placement any_placement(std::mt19937& random) {
  return random() % 2 == 0 ? Placement::kUser : Placement::kInPlace;
}

class CompressedGroupTest : public testing::Test {
 protected:
  std::mt19937 random_{kSeed};
};

// I2 and I6, at run time: on all ranks, along all routes and for any interleaving the bits of the
// exchange that is simulated by other code, in results and residuals.
TEST_F(CompressedGroupTest, GivesTheBitsOfTheSimulatedExchange) {
  for (int round = 0; round < 24; ++round) {
    SparseOptions options = any_options(random_);
    options.scope = SparseScope::kFlat;
    options.block = 0;
    const int ranks = 1 + static_cast<int>(random_() % 8);
    const std::vector<int> nodes = ranks > 2 ? std::vector<int>{ranks - 1, 1} : std::vector{ranks};
    SCOPED_TRACE("round " + std::to_string(round) + ": " + text(options, nodes));
    SparsePlan plan{.tensor_counts = {},
                    .ranks = ranks,
                    .rule = options.rule,
                    .wire = options.wire,
                    .result_wire = options.result_wire};
    std::vector<std::size_t> ks;
    for (const FeedbackTensor& tensor : options.tensors) {
      plan.tensor_counts.push_back(tensor.count);
      ks.push_back(pairs_to_keep(options.density, tensor.count));
      plan.k += ks.back();
    }
    test::SimulatedExchange expected(plan);
    std::vector<std::unique_ptr<CompressedJob>> jobs;
    for (const ExchangeRoute route : kRoutes) {
      options.route = route;
      jobs.push_back(
          std::make_unique<CompressedJob>(nodes, options, any_placement(random_), random_()));
    }
    for (int step = 0; step < 3; ++step) {
      const auto gradients = gradients_of(random_, options, ranks, normal);
      expected.step(gradients, ks, test::Route::kPairwise, static_cast<float>(1.0 / ranks));
      std::vector<std::uint32_t> residuals;
      for (int rank = 0; rank < ranks; ++rank) {
        for (std::size_t t = 0; t < ks.size(); ++t) {
          const auto own = bits_of(expected.feedback(rank).residual(t));
          residuals.insert(residuals.end(), own.begin(), own.end());
        }
      }
      for (const auto& job : jobs) {
        ASSERT_TRUE(job->step(gradients));
        for (int rank = 0; rank < ranks; ++rank) {
          ASSERT_EQ(bits_of(job->rank(rank).results()), bits_of(std::span(expected.outputs()[0])));
        }
        ASSERT_EQ(residual_bits(*job), residuals);
      }
    }
  }
}

/// A step of blocks of one rank each, in plain loops.
struct PlainBlocks {
  SparseOptions options;
  int ranks = 1;
  std::vector<Tensors> residuals = {};  ///< By rank.
  Tensors result = {};
  std::vector<std::size_t> pieces = {};  ///< By owner: blocks of which it has a value.
  std::vector<std::size_t> values = {};

  struct Value {
    std::size_t tensor = 0, block = 0, element = 0;
  };

  static int exponent(DType wire, const std::vector<float>& numbers) {
    float largest = 0;
    for (const float number : numbers) largest = std::max(largest, std::fabs(number));
    return fitting_exponent(wire, largest);
  }
  static std::vector<float> rounded(DType wire, std::vector<float> numbers) {
    round_to_wire(wire, exponent(wire, numbers), numbers, numbers);
    return numbers;
  }

  std::vector<Value> choose() const {
    std::vector<Value> chosen;
    for (std::size_t t = 0; t < options.tensors.size(); ++t) {
      const std::size_t count = options.tensors[t].count;
      std::vector<std::pair<float, std::size_t>> scores;  // Negative, so that they sort.
      for (std::size_t begin = 0; begin < count; begin += options.block) {
        const std::size_t size = std::min(options.block, count - begin);
        float score = 0;
        for (const Tensors& own : residuals) {
          score += reference::block_energy(std::span(own[t]).subspan(begin, size));
        }
        scores.emplace_back(-score, begin);
      }
      std::ranges::sort(scores);
      scores.resize(pairs_to_keep(options.density, scores.size()));
      std::ranges::sort(scores, {}, &std::pair<float, std::size_t>::second);
      for (const auto& [score, begin] : scores) {
        const std::size_t end = std::min(begin + options.block, count);
        for (std::size_t i = begin; i < end; ++i) chosen.push_back({t, begin, i});
      }
    }
    return chosen;
  }

  /// Calls visit(first, end) for each run of `chosen` with one block, and one owner if it matters.
  template <typename Visit>
  void for_runs(const std::vector<Value>& chosen, bool by_owner, Visit visit) const {
    const auto owner = [&](std::size_t position) {
      const auto all = static_cast<std::size_t>(ranks);
      const std::size_t each = chosen.size() / all, more = chosen.size() % all;
      return position < more * (each + 1) ? position / (each + 1) : (position - more) / each;
    };
    for (std::size_t begin = 0; begin < chosen.size();) {
      std::size_t end = begin + 1;
      while (end < chosen.size() && chosen[end].tensor == chosen[begin].tensor &&
             chosen[end].block == chosen[begin].block &&
             (!by_owner || owner(end) == owner(begin))) {
        ++end;
      }
      visit(begin, end, owner(begin));
      begin = end;
    }
  }

  void step(const std::vector<Tensors>& gradients, float scale) {
    residuals.resize(gradients.size());
    for (std::size_t rank = 0; rank < gradients.size(); ++rank) {
      if (residuals[rank].empty()) {
        for (const auto& tensor : gradients[rank]) residuals[rank].emplace_back(tensor.size());
      }
      for (std::size_t t = 0; t < options.tensors.size(); ++t) {
        for (std::size_t i = 0; i < gradients[rank][t].size(); ++i) {
          residuals[rank][t][i] += gradients[rank][t][i];
        }
      }
    }
    const std::vector<Value> chosen = choose();
    std::vector<float> sums;
    for (Tensors& own : residuals) {
      std::vector<float> sent(chosen.size());
      for_runs(chosen, false, [&](std::size_t begin, std::size_t end, std::size_t) {
        std::vector<float> run;
        for (std::size_t j = begin; j < end; ++j) {
          run.push_back(own[chosen[j].tensor][chosen[j].element]);
        }
        std::ranges::copy(rounded(options.wire, run),
                          sent.begin() + static_cast<std::ptrdiff_t>(begin));
      });
      for (std::size_t j = 0; j < chosen.size(); ++j) {
        own[chosen[j].tensor][chosen[j].element] -= sent[j];
      }
      if (sums.empty()) {
        sums = sent;
      } else {
        for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += sent[j];
      }
    }
    result.clear();
    for (const FeedbackTensor& tensor : options.tensors) result.emplace_back(tensor.count);
    pieces.assign(gradients.size(), 0);
    values.assign(gradients.size(), 0);
    for_runs(chosen, true, [&](std::size_t begin, std::size_t end, std::size_t owner) {
      const std::vector<float> run(sums.begin() + static_cast<std::ptrdiff_t>(begin),
                                   sums.begin() + static_cast<std::ptrdiff_t>(end));
      const std::vector<float> back = rounded(options.result_wire, run);
      for (std::size_t j = begin; j < end; ++j) {
        const Value& value = chosen[j];
        residuals[owner][value.tensor][value.element] += run[j - begin] - back[j - begin];
        result[value.tensor][value.element] = scale * back[j - begin];
      }
      ++pieces[owner];
      values[owner] += end - begin;
    });
  }
};

// The same for blocks, and of what transports count.
TEST_F(CompressedGroupTest, BlocksGiveTheBitsOfAPlainSimulation) {
  for (int round = 0; round < 24; ++round) {
    SparseOptions options = any_options(random_);
    options.scope = SparseScope::kFlat;
    options.block = any_of(random_, {std::size_t{16}, std::size_t{48}, std::size_t{256}});
    const int ranks = 1 + static_cast<int>(random_() % 8);
    const std::vector<int> nodes(static_cast<std::size_t>(ranks), 1);
    PlainBlocks expected{.options = options, .ranks = ranks};
    std::vector<std::unique_ptr<CompressedJob>> jobs;
    for (const ExchangeRoute route : {ExchangeRoute::kPairwise, ExchangeRoute::kLogStep}) {
      options.route = route;
      jobs.push_back(
          std::make_unique<CompressedJob>(nodes, options, any_placement(random_), random_()));
    }
    SCOPED_TRACE("round " + std::to_string(round) + ": " + text(options, nodes));
    std::uint64_t sent_before = 0;
    for (int step = 0; step < 3; ++step) {
      const auto gradients = gradients_of(random_, options, ranks, normal);
      expected.step(gradients, static_cast<float>(1.0 / ranks));
      std::vector<std::uint32_t> residuals;
      for (const Tensors& own : expected.residuals) {
        const auto bits = bits_of(own);
        residuals.insert(residuals.end(), bits.begin(), bits.end());
      }
      for (const auto& job : jobs) {
        ASSERT_TRUE(job->step(gradients));
        for (int rank = 0; rank < ranks; ++rank) {
          ASSERT_EQ(bits_of(job->rank(rank).results()), bits_of(expected.result));
        }
        ASSERT_EQ(residual_bits(*job), residuals);
      }
      // I13, of rank 0 by the pairwise route: scores and values there, and back.
      const BlockPlan plan = *sparse_layout(0, ProcessGrid::with_node_sizes(nodes), options).blocks;
      std::size_t bytes = 0;
      const auto scores_of = [&](int owner) {
        const auto bound = [&](int i) {
          return plan.blocks() * static_cast<std::size_t>(i) / static_cast<std::size_t>(ranks);
        };
        const std::size_t scores = bound(owner + 1) - bound(owner);
        return scores > 0 ? 8 + 4 * scores : 0;
      };
      for (int peer = 1; peer < ranks; ++peer) {
        const auto i = static_cast<std::size_t>(peer);
        bytes += scores_of(peer) + scores_of(0);
        if (plan.dealt(peer, bucket_count(options)).count > 0) {
          bytes += plan.share().bytes(expected.pieces[i], expected.values[i]);
        }
        bytes += plan.result().bytes(expected.pieces[0], expected.values[0]);
      }
      const std::uint64_t sent = jobs[0]->rank(0).sent_bytes();
      ASSERT_EQ(sent - sent_before, bytes);
      sent_before = sent;
    }
  }
}

// I8, of all ranks together: no other choice of so many whole blocks leaves less in the residuals.
TEST_F(CompressedGroupTest, WhatBlocksLeaveIsAContraction) {
  SparseOptions options = options_of({160 * 16}, 0.1);
  options.block = 16;
  options.wire = DType::kFloat32;
  CompressedJob job({3}, options);
  const auto gradients = gradients_of(random_, options, 3, normal);
  ASSERT_TRUE(job.step(gradients));
  double before = 0, after = 0;
  for (int rank = 0; rank < 3; ++rank) {
    for (const float value : gradients[static_cast<std::size_t>(rank)][0]) {
      before += double{value} * double{value};
    }
    const double norm = job.group(rank).residual_norm(0);
    after += norm * norm;
  }
  EXPECT_LT(after, (1 - 0.1) * before);
  EXPECT_GT(after, 0.5 * before);
}

// I3 and I4: over warm-up, ramp and steady state, and a flush at the end, which leaves nothing.
TEST_F(CompressedGroupTest, MassIsConservedExactly) {
  for (int round = 0; round < 30; ++round) {
    SparseOptions options = any_options(random_);
    const std::vector<int> nodes = any_nodes(random_);
    options.warm_up = {.dense_steps = random_() % 2, .ramp = {0.5}, .steps_per_density = 2};
    SCOPED_TRACE("round " + std::to_string(round) + ": " + text(options, nodes));
    CompressedJob job(nodes, options, any_placement(random_), random_());
    Sums put_in = zeros(options), came_out = zeros(options);
    for (int step = 0; step < 8; ++step) {
      const bool is_last = step == 7;
      const auto gradients = gradients_of(random_, options, job.size(), lattice);
      for (int rank = 0; is_last && rank < job.size(); ++rank) job.group(rank).flush_next();
      ASSERT_TRUE(job.step(gradients));
      for (const Tensors& own : gradients) add(put_in, own, 1);
      add(came_out, job.rank(0).results(), job.size());
      for (int rank = 1; rank < job.size(); ++rank) {
        ASSERT_EQ(bits_of(job.rank(rank).results()), bits_of(job.rank(0).results()));
      }
      const Sums left = residual_sums(job, options);
      for (std::size_t t = 0; t < left.size(); ++t) {
        for (std::size_t i = 0; i < left[t].size(); ++i) {
          ASSERT_EQ(came_out[t][i] + left[t][i], put_in[t][i]) << "step " << step << ", " << i;
          if (is_last) {
            ASSERT_EQ(left[t][i], 0.0);
          }
        }
      }
    }
  }
}

// I5, and the same between nodes, where sums of nodes are summed.
TEST_F(CompressedGroupTest, DensityOneEqualsTheDensePath) {
  for (const std::vector<int>& nodes :
       {std::vector<int>{1}, {2}, {5}, {1, 1, 1}, {2, 2}, {3, 3}, {2, 1}}) {
    for (SparseOptions options : all_ways(options_of({777, 1, 1600}, 1.0))) {
      options.wire = DType::kFloat32;
      SCOPED_TRACE(text(options, nodes));
      CompressedJob sparse(nodes, options);
      options.warm_up.dense_steps = 1;
      CompressedJob dense(nodes, options);
      const auto gradients = gradients_of(random_, options, sparse.size(), normal);
      ASSERT_TRUE(sparse.step(gradients));
      ASSERT_TRUE(dense.step(gradients));
      EXPECT_GT(sparse.group(0).stats().k, 0u);
      EXPECT_EQ(dense.group(0).stats().k, 0u);
      ASSERT_EQ(bits_of(sparse.rank(0).results()), bits_of(dense.rank(0).results()));
      if (nodes.size() > 1 && nodes[0] > 1 && nodes[0] == nodes[1]) continue;
      for (std::size_t t = 0; t < options.tensors.size(); ++t) {
        std::vector<const void*> sources;
        for (const Tensors& own : gradients) sources.push_back(own[t].data());
        std::vector<float> expected(options.tensors[t].count);
        reduce(DType::kFloat32, ReduceOp::kSum, expected.data(), sources, expected.size(),
               1.0 / sparse.size());
        ASSERT_EQ(bits_of(std::span(sparse.rank(0).results()[t])), bits_of(std::span(expected)));
      }
    }
  }
}

// I10: one bad number on any rank, and no bit of any state has changed on any rank; all see it.
TEST_F(CompressedGroupTest, ABadNumberOnOneRankSkipsTheStepOnAll) {
  for (int round = 0; round < 24; ++round) {
    SparseOptions options = any_options(random_);
    const std::vector<int> nodes = any_nodes(random_);
    if (round % 3 == 0) options.momentum = MomentumCorrection{};
    options.warm_up.dense_steps = round % 4 == 0 ? 2 : 0;
    SCOPED_TRACE("round " + std::to_string(round) + ": " + text(options, nodes));
    CompressedJob job(nodes, options, any_placement(random_), random_());
    ASSERT_TRUE(job.step(gradients_of(random_, options, job.size(), normal)));
    const auto before = residual_bits(job);
    auto gradients = gradients_of(random_, options, job.size(), normal);
    auto& tensor = gradients[random_() % gradients.size()][random_() % options.tensors.size()];
    tensor[random_() % tensor.size()] = round % 2 == 0 ? std::numeric_limits<float>::infinity()
                                                       : std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(job.step(gradients));
    ASSERT_EQ(residual_bits(job), before);
    for (int rank = 0; rank < job.size(); ++rank) {
      const Tensors& results = job.rank(rank).results();
      EXPECT_TRUE(std::ranges::any_of(results, [](const auto& values) {
        return std::ranges::any_of(values, [](float value) { return !std::isfinite(value); });
      }));
      EXPECT_EQ(job.group(rank).stats().skipped, 1u);
    }
    EXPECT_TRUE(job.step(gradients_of(random_, options, job.size(), normal)));
  }
}

TEST_F(CompressedGroupTest, ASumThatOverflowsSkipsTheStep) {
  for (const std::vector<int>& nodes : {std::vector<int>{2}, {1, 1}, {2, 2}}) {
    for (const SparseOptions& options : all_ways(options_of({500}, 0.1))) {
      SCOPED_TRACE(text(options, nodes));
      CompressedJob job(nodes, options);
      auto gradients = gradients_of(random_, options, job.size(), normal);
      const auto before = residual_bits(job);
      for (Tensors& own : gradients) own[0][77] = 3e38f;
      EXPECT_FALSE(job.step(gradients));
      EXPECT_EQ(residual_bits(job), before);
    }
  }
}

// I11.
TEST_F(CompressedGroupTest, Edges) {
  const auto zero = [](std::mt19937&) { return 0.0f; };
  const auto minus_zero = [](std::mt19937&) { return -0.0f; };
  const auto equal = [](std::mt19937&) { return -2.5f; };
  const auto denormal = [](std::mt19937& random) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(random()) & 0x807fffffu);
  };
  for (float (*const number)(std::mt19937&) : {+zero, +minus_zero, +equal, +denormal}) {
    for (const std::vector<std::size_t>& counts :
         {std::vector<std::size_t>{1}, {3, 0, 2}, {64 * 5 + 1, 0, 63}}) {
      for (const std::vector<int>& nodes : {std::vector<int>{5}, {2, 2}, {4, 4}}) {
        for (const SparseOptions& options : all_ways(options_of(counts, 0.1))) {
          SCOPED_TRACE(text(options, nodes));
          CompressedJob job(nodes, options);
          for (int step = 0; step < 2; ++step) {
            ASSERT_TRUE(job.step(gradients_of(random_, options, job.size(), number)));
            for (int rank = 1; rank < job.size(); ++rank) {
              ASSERT_EQ(bits_of(job.rank(rank).results()), bits_of(job.rank(0).results()));
            }
          }
        }
      }
    }
  }
}

/// What a rank sends in each phase of a step, by the formulas of payloads and the pairs that it
/// really sends; the second phase is empty by all-gather.
struct Phases {
  std::size_t shares = 0;
  std::size_t results = 0;
};

/// `results` are what each owner sends back.
Phases expected_phases(int rank, ExchangeRoute route, const SparsePlan& plan,
                       const std::vector<Shares>& shares, const std::vector<std::size_t>& results) {
  Phases phases;
  const int ranks = plan.ranks;
  const auto share_bytes = [&](int source, int owner) {
    return plan.share().bytes(shares[static_cast<std::size_t>(source)].pairs_of(owner).size());
  };
  const auto result_bytes = [&](int owner) {
    return plan.result().bytes(results[static_cast<std::size_t>(owner)]);
  };
  const auto whole_words = [](std::size_t bytes) { return (bytes + 7) / 8 * 8; };
  if (route == ExchangeRoute::kAllGather) {
    phases.shares = static_cast<std::size_t>(ranks - 1) * plan.contribution().bytes(plan.k);
  } else if (route == ExchangeRoute::kPairwise) {
    for (int owner = 0; owner < ranks; ++owner) {
      if (owner != rank) phases.shares += share_bytes(rank, owner);
    }
    phases.results = static_cast<std::size_t>(ranks - 1) * result_bytes(rank);
  } else {
    for (int round = 0; round < log_step_rounds(ranks); ++round) {
      phases.shares += kJoinedHeaderBytes;
      for (const Forward& forward : log_step_forwards(ranks, rank, round)) {
        phases.shares += whole_words(share_bytes(forward.source, forward.destination));
      }
    }
    for (int distance = 1; distance < ranks; distance *= 2) {
      phases.results += kJoinedHeaderBytes;
      for (int i = 0; i < std::min(distance, ranks - distance); ++i) {
        phases.results += whole_words(result_bytes((rank + i) % ranks));
      }
    }
  }
  return phases;
}

// I13: what the transports count is what the formulas say of each phase, for the pairs that the
// exchange, which is simulated by other code, has sent; and never more than was planned.
TEST_F(CompressedGroupTest, CountedBytesAreThoseOfTheFormulas) {
  for (const int ranks : {2, 3, 5, 8, 16, 64, 256}) {
    const std::vector<std::size_t> counts = ranks > 64 ? std::vector<std::size_t>{20000, 48}
                                                       : std::vector<std::size_t>{30000, 48, 40000};
    SparseOptions options = options_of(counts, 0.01);
    const std::vector<int> nodes(static_cast<std::size_t>(ranks), 1);
    const auto grid = ProcessGrid::with_node_sizes(nodes);
    const SparsePlan plan = sparse_layout(0, grid, options).plan;
    std::vector<std::size_t> ks;
    for (const std::size_t count : counts) ks.push_back(pairs_to_keep(0.01, count));
    test::SimulatedExchange simulated(plan);
    const auto gradients = gradients_of(random_, options, ranks, normal);
    simulated.step(gradients, ks, test::Route::kPairwise, 1.0f);
    std::vector<Shares> shares(static_cast<std::size_t>(ranks));
    std::vector<std::size_t> results;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto i = static_cast<std::size_t>(rank);
      split(plan, simulated.contributions()[i], shares[i]);
      results.push_back(0);
      for (std::size_t e = 0; e < plan.count(); ++e) {
        const bool is_own = plan.ownership().owner(e) == rank;
        if (is_own && simulated.outputs()[0][e] != 0.0f) ++results.back();
      }
    }
    for (const ExchangeRoute route : kRoutes) {
      options.route = route;
      SCOPED_TRACE(text(options, nodes));
      CompressedJob job(nodes, options);
      ASSERT_TRUE(job.step(gradients));
      for (int rank = 0; rank < ranks; ++rank) {
        const Phases phases = expected_phases(rank, route, plan, shares, results);
        ASSERT_EQ(job.rank(rank).sent_bytes(), phases.shares + phases.results) << rank;
        ASSERT_EQ(job.rank(rank).sent_bytes(), job.rank(rank).network_bytes());
        ASSERT_LE(job.rank(rank).sent_bytes(), planned_exchange(rank, grid, options).bytes);
        if (route == ExchangeRoute::kPairwise) {
          const auto& account = simulated.accounts()[static_cast<std::size_t>(rank)];
          ASSERT_EQ(phases.shares, account.split_bytes);
          ASSERT_EQ(phases.results, account.gather_bytes);
        }
      }
    }
  }
}

// T5: with pairs to owners in 6 bytes and back in 8, whatever the number of ranks; headers apart.
TEST_F(CompressedGroupTest, BytesDoNotGrowWithTheNumberOfRanks) {
  for (const int ranks : {2, 16, 128, 256}) {
    const SparseOptions options = options_of({65536}, 0.02);
    CompressedJob job(std::vector<int>(static_cast<std::size_t>(ranks), 1), options);
    ASSERT_TRUE(job.step(gradients_of(random_, options, ranks, normal)));
    const auto others = static_cast<std::size_t>(ranks - 1);
    const std::size_t k = job.group(0).stats().k;
    for (int rank = 0; rank < ranks; ++rank) {
      // Header, segment, padding and page count there; header, segment, page and a rounded quota
      // back.
      EXPECT_LE(job.rank(rank).sent_bytes(), 14 * k + others * (16 + 8 + 2 + 4 + 16 + 8 + 4 + 8))
          << ranks << " ranks, seed " << kSeed;
    }
  }
}

// The same of blocks, with both ways in 16 bits: 4 bytes a value, 8 a score, headers apart.
TEST_F(CompressedGroupTest, BytesOfBlocksDoNotGrowWithTheNumberOfRanks) {
  for (const int ranks : {2, 16, 128, 256}) {
    SparseOptions options = options_of({65536}, 0.02);
    options.block = 64;
    options.result_wire = options.wire;
    CompressedJob job(std::vector<int>(static_cast<std::size_t>(ranks), 1), options);
    ASSERT_TRUE(job.step(gradients_of(random_, options, ranks, normal)));
    const auto others = static_cast<std::size_t>(ranks - 1);
    const std::size_t k = job.group(0).stats().k;
    EXPECT_EQ(k, 21u * 64);
    for (int rank = 0; rank < ranks; ++rank) {
      // Two lengths and a rounded part of the scores; two headers, exponents of two blocks more
      // than there are and a rounded part of the values.
      EXPECT_LE(job.rank(rank).sent_bytes(),
                4 * k + 8 * (65536 / 64) + 4 * 21 + others * (2 * 8 + 4 + 2 * (16 + 4 + 2) + 2))
          << ranks << " ranks, seed " << kSeed;
    }
  }
}

TEST_F(CompressedGroupTest, SavedStateGoesOnBitForBit) {
  for (const std::vector<int>& nodes : {std::vector<int>{3}, {2, 2}})
    for (const std::size_t block : kBlocks) {
      SparseOptions options = options_of({900, 300}, 0.05);
      options.momentum = MomentumCorrection{};
      options.warm_up = {.dense_steps = 1, .ramp = {0.25}, .steps_per_density = 2};
      options.block = block;
      CompressedJob whole(nodes, options);
      std::unique_ptr<CompressedJob> resumed;
      for (int step = 0; step < 6; ++step) {
        if (step == 2) {
          resumed = std::make_unique<CompressedJob>(nodes, options);
          for (int rank = 0; rank < whole.size(); ++rank) {
            resumed->group(rank).load(whole.group(rank).save());
            resumed->group(rank).set_step(whole.group(rank).step());
          }
        }
        const auto gradients = gradients_of(random_, options, whole.size(), normal);
        ASSERT_TRUE(whole.step(gradients));
        if (!resumed) continue;
        ASSERT_TRUE(resumed->step(gradients));
        ASSERT_EQ(bits_of(resumed->rank(0).results()), bits_of(whole.rank(0).results()));
        ASSERT_EQ(residual_bits(*resumed), residual_bits(whole));
      }
      EXPECT_GT(whole.group(0).residual_norm(0), 0.0);
    }
}

// I12: among other ranks and nodes, what all residuals are worth stays the same, exactly.
TEST_F(CompressedGroupTest, ARemappedStateIsWorthAsMuch) {
  for (int round = 0; round < 16; ++round) {
    SparseOptions options = any_options(random_);
    const std::vector<int> before = any_nodes(random_), after = any_nodes(random_);
    if (round % 2 == 0) options.momentum = MomentumCorrection{.momentum = 0.5f};
    SCOPED_TRACE("round " + std::to_string(round) + ": " + text(options, before) + " to " +
                 test::shape_text(after));
    CompressedJob old_job(before, options), new_job(after, options);
    for (int step = 0; step < 3; ++step) {
      ASSERT_TRUE(old_job.step(gradients_of(random_, options, old_job.size(), lattice)));
    }
    std::vector<FeedbackState> states;
    for (int rank = 0; rank < old_job.size(); ++rank) states.push_back(old_job.group(rank).save());
    const double factor = static_cast<double>(new_job.size()) / old_job.size();
    for (int rank = 0; rank < new_job.size(); ++rank) {
      CompressedGroup& group = new_job.group(rank);
      group.load(remap(states, group.share(factor)));
    }
    Sums expected = residual_sums(old_job, options);
    for (auto& sums : expected) {
      for (double& sum : sums) sum *= factor;
    }
    ASSERT_EQ(residual_sums(new_job, options), expected);
  }
}

// Nobody's momentum is lost or counted twice: at density one, without masking, it is that of a
// dense optimizer, before and after the dense steps.
TEST_F(CompressedGroupTest, CorrectedMomentumAtDensityOneIsTheOptimizers) {
  for (const std::vector<int>& nodes : {std::vector<int>{2}, {2, 2}})
    for (const std::size_t block : kBlocks) {
      SparseOptions options = options_of({160}, 1.0);
      options.block = block;
      options.wire = DType::kFloat32;
      options.momentum = MomentumCorrection{.momentum = 0.5f, .masking = false};
      options.warm_up.dense_steps = 2;
      CompressedJob job(nodes, options);
      std::vector<double> velocity(160);
      for (int step = 0; step < 4; ++step) {
        const auto gradients = gradients_of(random_, options, job.size(), lattice);
        ASSERT_TRUE(job.step(gradients));
        for (std::size_t i = 0; i < velocity.size(); ++i) {
          double sum = 0;
          for (const Tensors& own : gradients) sum += double{own[0][i]};
          velocity[i] = 0.5 * velocity[i] + sum / job.size();
          ASSERT_EQ(double{job.rank(0).results()[0][i]}, velocity[i]) << "step " << step;
        }
      }
    }
}

TEST_F(CompressedGroupTest, WithoutFeedbackNothingIsKept) {
  for (const std::size_t block : kBlocks) {
    SparseOptions options = options_of({2000}, 0.01);
    options.feedback = false;
    options.block = block;
    CompressedJob job({2}, options);
    ASSERT_TRUE(job.step(gradients_of(random_, options, 2, normal)));
    EXPECT_EQ(job.group(0).residual_norm(0), 0.0);
  }
}

TEST_F(CompressedGroupTest, StepsHaveAnOrder) {
  const SparseOptions options = options_of({2000}, 0.01);
  CompressedJob job({1}, options);
  EXPECT_THROW(job.group(0).commit(), UsageError);
  EXPECT_THROW(job.group(0).abort(), UsageError);
  ASSERT_TRUE(job.step(gradients_of(random_, options, 1, normal)));
  EXPECT_EQ(job.group(0).step(), 1u);
}

TEST_F(CompressedGroupTest, SteadyStateAllocatesNothing) {
  for (SparseOptions options : all_ways(options_of({20000, 5000}, 0.02))) {
    options.result_wire = DType::kFloat16;
    SCOPED_TRACE(text(options, {1}));
    CompressedJob job({1}, options);
    auto gradients = gradients_of(random_, options, 1, normal);
    for (int step = 0; step < 8; ++step) {
      job.rank(0).start(gradients[0]);
      const test::AllocationCounter counter;
      while (job.rank(0).busy()) job.rank(0).poll();
      job.group(0).commit();
      if (step >= 3) {
        EXPECT_EQ(counter.calls(), 0u) << "step " << step;
      }
    }
  }
}

// The same from a thread for each rank, for the thread sanitizer.
TEST_F(CompressedGroupTest, RanksMayBeThreads) {
  for (const std::vector<int>& nodes : {std::vector<int>{3}, {2, 2}})
    for (const std::size_t block : kBlocks) {
      SparseOptions options = options_of({5000}, 0.02);
      options.route = ExchangeRoute::kLogStep;
      options.block = block;
      CompressedJob job(nodes, options), expected(nodes, options);
      for (int step = 0; step < 3; ++step) {
        const auto gradients = gradients_of(random_, options, job.size(), normal);
        ASSERT_TRUE(expected.step(gradients));
        test::run_ranks(job.size(), [&](const test::RankRun& run) {
          test::CompressedRank& rank = job.rank(run.rank());
          rank.start(gradients[static_cast<std::size_t>(run.rank())]);
          run.poll_until([&] { return rank.poll(); }, [&] { return !rank.busy(); });
          rank.group->commit();
        });
        for (int rank = 0; rank < job.size(); ++rank) {
          ASSERT_EQ(bits_of(job.rank(rank).results()), bits_of(expected.rank(0).results()));
        }
      }
    }
}

}  // namespace
}  // namespace kolo
