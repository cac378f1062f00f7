// Tests gradient sets for which some ranks have no more data.

#include <gmock/gmock.h>

#include <chrono>
#include <numeric>
#include <random>
#include <span>

#include "compression/compression_spec.h"
#include "runtime/gradients/gradient_compression.h"
#include "tests/runtime/join/joined_job.h"
#include "tests/support/node_shapes.h"

namespace kolo::joined {
namespace {

using ::testing::HasSubstr;

const std::vector<std::size_t> kCounts = {5, 64, 1, 100, 33, 4160};

float value_of(int rank, std::size_t gradient, int iteration, std::size_t i) {
  return static_cast<float>((rank * 7 + iteration * 3 + static_cast<int>(gradient + i % 5)) % 13);
}

/// A set whose ranks have data for different numbers of iterations. Some ranks have none.
class UnevenIterations {
 public:
  UnevenIterations(const std::vector<int>& nodes, const std::string& rules,
                   const GradientOptions& set_options, unsigned seed)
      : options_(set_options),
        is_exact_(rules == "none"),
        job_(ProcessGrid::with_node_sizes(nodes), options(), seed),
        random_(seed),
        ranks_(static_cast<std::size_t>(job_.world_size())) {
    std::vector<std::shared_ptr<GradientSetState>> sets;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      std::vector<GradientSpec> specs;
      for (std::size_t count : kCounts) {
        specs.push_back({.name = "g" + std::to_string(specs.size()), .shape = {count, 1}});
        if (count % 64 == 0) specs.back().shape = {count / 64, 64};
      }
      resolve_compression(specs, CompressionRules::parse(rules));
      ranks_[rank].set = std::make_shared<GradientSetState>("model", specs, set_options);
      sets.push_back(ranks_[rank].set);
      job_.engine(static_cast<int>(rank)).submit(sets.back());
    }
    job_.run_until_registered(sets);
    for (const auto& set : sets) set->registration().wait(std::chrono::milliseconds(1));
  }

  void run() {
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (Rank& rank : ranks_) {
        rank.ends_at = rank.iteration = begins_at_;
        rank.ends_at += static_cast<int>(random_() % 4);
        rank.ticket.reset();
      }
      ranks_[random_() % ranks_.size()].ends_at = begins_at_ + 5;
      job_.run_until([&] {
        bool is_over = true;
        for (int rank = 0; rank < job_.world_size(); ++rank) is_over &= move(rank);
        return is_over;
      });
      if (::testing::Test::HasFatalFailure()) return;
      for (const Rank& rank : ranks_) EXPECT_EQ(outcome(*rank.ticket), outcome(*ranks_[0].ticket));
      begins_at_ += 5;
    }
    // Ranks that had joined have the same values of the last iteration as all others.
    for (std::size_t g = 0; g < kCounts.size(); ++g) {
      for (const Rank& rank : ranks_) {
        EXPECT_TRUE(std::ranges::equal(values(rank, g), values(ranks_[0], g)));
      }
    }
    EXPECT_EQ(job_.close(), "");
  }

 private:
  struct Rank {
    std::shared_ptr<GradientSetState> set = {};
    int iteration = 0, ends_at = 0;
    bool is_waiting = false;
    std::shared_ptr<JoinTicket> ticket = {};
  };

  static std::span<float> values(const Rank& rank, std::size_t gradient) {
    const BufferView& view = rank.set->view(gradient);
    return {static_cast<float*>(view.data), view.count};
  }

  /// Lets a rank continue. Returns whether it has returned from its join.
  bool move(int number) {
    Rank& rank = ranks_[static_cast<std::size_t>(number)];
    if (rank.ticket) return rank.ticket->done();
    if (rank.is_waiting) {
      if (!rank.set->iterations().is_over()) return false;
      EXPECT_TRUE(rank.set->wait(std::chrono::milliseconds(1)));
      rank.is_waiting = false;
      if (is_exact_) check(rank, number);
      ++rank.iteration;
    }
    if (rank.iteration == rank.ends_at) {
      rank.ticket = join(job_, number);
      return false;
    }
    std::vector<std::size_t> order(kCounts.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::shuffle(order, random_);
    if (options_.divisor == Divisor::kSamples) rank.set->set_samples(2);
    for (const std::size_t g : order) {
      const std::span<float> mine = values(rank, g);
      for (std::size_t i = 0; i < mine.size(); ++i) {
        mine[i] = value_of(number, g, rank.iteration, i);
      }
      test::mark(job_.engine(number), *rank.set, g);
    }
    rank.is_waiting = true;
    return false;
  }

  void check(const Rank& of, int number) const {
    for (std::size_t g = 0; g < kCounts.size(); ++g) {
      const std::span<float> got = values(of, g);
      for (std::size_t i = 0; i < got.size(); ++i) {
        float sum = 0, least = 1e9f;
        int active = 0;
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
          if (ranks_[rank].ends_at <= of.iteration) continue;
          const float value = value_of(static_cast<int>(rank), g, of.iteration, i);
          sum += value;
          least = std::min(least, value);
          ++active;
        }
        if (options_.op == ReduceOp::kAverage) {
          sum /= static_cast<float>(options_.divisor == Divisor::kAllRanks ? job_.world_size()
                                                                           : active);
        }
        ASSERT_NEAR(got[i], options_.op == ReduceOp::kMin ? least : sum, 1e-4)
            << "gradient " << g << " of iteration " << of.iteration << " at rank " << number;
      }
    }
  }

  const GradientOptions options_;
  const bool is_exact_;
  EngineJob job_;
  std::mt19937 random_;
  std::vector<Rank> ranks_;
  int begins_at_ = 0;
};

void run_all(const std::string& rules, const GradientOptions& set_options, unsigned count) {
  for (const std::vector<int>& nodes : kShapes) {
    for (unsigned seed = 0; seed < seeds(count); ++seed) {
      SCOPED_TRACE(test::shape_text(nodes) + ", seed " + std::to_string(seed));
      UnevenIterations(nodes, rules, set_options, seed).run();
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(JoinedGradients, AreSumsOverTheRanksWithData) { run_all("none", {.op = ReduceOp::kSum}, 6); }

TEST(JoinedGradients, AreMinimaOverTheRanksWithData) { run_all("none", {.op = ReduceOp::kMin}, 2); }

TEST(JoinedGradients, AreAveragesOverAllRanks) { run_all("none", {}, 2); }

TEST(JoinedGradients, AreAveragesOverContributingRanks) {
  run_all("none", {.divisor = Divisor::kContributingRanks}, 4);
}

TEST(JoinedGradients, AreAveragesOverSamples) {
  run_all("none", {.divisor = Divisor::kSamples}, 4);
}

TEST(JoinedGradients, TravelSparselyToo) { run_all("g5=topk(0.05,route=owners)", {}, 4); }

TEST(JoinedGradients, InTheMiddleOfAnIterationAreMisuse) {
  EngineJob job(ProcessGrid::with_node_sizes({2}), options(), 1);
  const auto sets = job.register_sets({{.name = "a", .shape = {4}}, {.name = "b", .shape = {4}}});
  for (const auto& set : sets) set->registration().wait(std::chrono::milliseconds(1));
  test::mark(job.engine(0), *sets[0], 0);
  const auto early = join(job, 0);
  job.run_until([&] { return early->done(); });
  EXPECT_THAT(outcome(*early), HasSubstr("in the middle of an iteration"));
  test::mark(job.engine(0), *sets[0], 1);
  std::vector<std::shared_ptr<JoinTicket>> tickets{join(job, 1)};
  job.run_until([&] { return sets[0]->iterations().is_over(); });
  EXPECT_TRUE(sets[0]->wait(std::chrono::milliseconds(1)));
  tickets.push_back(join(job, 0));
  expect_all_joined(job, tickets, "0");
}

}  // namespace
}  // namespace kolo::joined
