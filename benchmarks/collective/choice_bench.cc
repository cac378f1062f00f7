#include "benchmarks/collective/choice_bench.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "benchmarks/collective/checked_results.h"
#include "benchmarks/collective/goal_choice.h"
#include "benchmarks/collective/kolo_system.h"
#include "benchmarks/common/exchange.h"
#include "benchmarks/common/samples.h"

namespace kolo::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kHopelessRatio = 2;
/// Rounds before any algorithm is dropped.
constexpr int kFirstRounds = 2;
constexpr int kWarmups = 3;
constexpr int kMostIterationsPerRound = 100;

/// "auto" or one algorithm on one case.
struct Candidate {
  std::string name;
  Runtime* runtime = nullptr;
  std::unique_ptr<CollectiveRun> run;
  int iterations = 1;                 ///< Per round.
  std::vector<double> times_us = {};  ///< Times of this rank, round after round.
  RoundTimes rounds = {};             ///< Medians of the slowest rank, at the end.
  bool hopeless = false;
};

/// All measurements of one case.
class ChoiceBench {
 public:
  ChoiceBench(const std::vector<Runtime*>& runtimes, const std::vector<std::string>& algorithms,
              const ChoiceOptions& options, const CollectiveCase& what)
      : runtime_(*runtimes.front()), options_(options), what_(what), sums_(runtime_, what) {
    for (std::size_t i = 0; i < runtimes.size(); ++i) {
      Candidate each{.name = i == 0 ? "auto" : algorithms[i - 1],
                     .runtime = runtimes[i],
                     .run = std::move(make_kolo_system(*runtimes[i])->prepare(what)[0])};
      // Some algorithms hold no large collectives: another one would run under their name.
      const bool is_itself =
          i == 0 || what.verb == Verb::kAllReduce || each.run->algorithm() == each.name;
      if (is_itself) contenders_.push_back(std::move(each));
    }
  }

  ChoiceRow measure(const GoalChoice& predictions) {
    for (Candidate& contender : contenders_) check_sums(contender);
    const int rounds = plan_rounds();
    std::vector<std::size_t> order(contenders_.size());
    std::iota(order.begin(), order.end(), 0);
    // The same on all ranks. The order changes, so that no algorithm always finds the caches of the
    // same one.
    std::mt19937_64 random(what_.bytes);
    for (int round = 0; round < rounds; ++round) {
      std::shuffle(order.begin(), order.end(), random);
      for (const std::size_t i : order) {
        if (!contenders_[i].hopeless) time_round(contenders_[i]);
      }
      if (round + 1 == kFirstRounds) drop_the_hopeless();
    }
    for (Candidate& contender : contenders_) {
      check_sums(contender);
      contender.rounds = rounds_of(contender);
    }
    return row(predictions, rounds);
  }

  bool all_right() const { return wrong_ == 0; }

 private:
  void check_sums(Candidate& contender) {
    contender.run->write(sums_.contribution());
    contender.run->run();
    wrong_ += sums_.count_wrong(runtime_, *contender.run);
  }

  /// Short rounds with several iterations each, of equal duration for all contenders.
  int plan_rounds() {
    double least_us = 0;
    for (Candidate& contender : contenders_) {
      constexpr int kTrials = 3;
      std::vector<double> times_us = time(contender, kTrials);
      max_over_ranks(runtime_, times_us);
      const double us = std::max(0.1, *std::ranges::min_element(times_us));
      contender.iterations =
          static_cast<int>(std::clamp(options_.seconds * 1e6 / options_.rounds / us, 1.0,
                                      static_cast<double>(kMostIterationsPerRound)));
      least_us = least_us > 0 ? std::min(least_us, us) : us;
    }
    constexpr double kLeastRounds = 4;
    return static_cast<int>(std::clamp(options_.seconds * 1e6 / least_us, kLeastRounds,
                                       std::max<double>(kLeastRounds, options_.rounds)));
  }

  void time_round(Candidate& contender) {
    // Sums grow in place; a fresh contribution keeps them finite for a round.
    contender.run->write(sums_.contribution());
    for (int i = 0; i < std::min(kWarmups, contender.iterations); ++i) contender.run->run();
    // No exchange here: it would load one of the runtimes more than the others.
    const std::vector<double> times_us = time(contender, contender.iterations);
    contender.times_us.insert(contender.times_us.end(), times_us.begin(), times_us.end());
  }

  /// Collective.
  RoundTimes rounds_of(const Candidate& contender) const {
    std::vector<double> times_us = contender.times_us;
    max_over_ranks(runtime_, times_us);
    RoundTimes rounds;
    for (auto from = times_us.begin(); from != times_us.end(); from += contender.iterations) {
      rounds.push_back(summarise({from, from + contender.iterations}).median);
    }
    return rounds;
  }

  std::vector<double> time(Candidate& contender, int iterations) const {
    // A root that hears nothing from others would be several calls ahead of them.
    const int ranks = runtime_.world_size();
    const bool together = options_.together || !what_.goal(ranks).is_mutual(ranks);
    std::vector<double> times_us;
    times_us.reserve(static_cast<std::size_t>(iterations));
    auto ended = Clock::now();
    for (int i = 0; i < iterations; ++i) {
      if (together) begin_together(*contender.runtime, ended);
      const auto start = Clock::now();
      contender.run->run();
      ended = Clock::now();
      times_us.push_back(std::chrono::duration<double, std::micro>(ended - start).count());
    }
    return times_us;
  }

  /// "auto" stays, and so does its choice.
  void drop_the_hopeless() {
    std::vector<double> least_us;
    for (const Candidate& each : contenders_) {
      least_us.push_back(std::ranges::min(rounds_of(each)));
    }
    const double best_us = std::ranges::min(least_us);
    std::vector<std::size_t> others;
    for (std::size_t i = 0; i < contenders_.size(); ++i) {
      if (!is_chosen(contenders_[i])) others.push_back(i);
    }
    std::ranges::sort(others, {}, [&](std::size_t i) { return least_us[i]; });
    // At least one rival stays.
    for (std::size_t i = 1; i < others.size(); ++i) {
      contenders_[others[i]].hopeless = least_us[others[i]] > kHopelessRatio * best_us;
    }
  }

  bool is_chosen(const Candidate& each) const {
    return &each == &contenders_.front() || each.name == contenders_.front().run->algorithm();
  }

  ChoiceRow row(const GoalChoice& predictions, int rounds) const {
    const auto candidate = [&](const Candidate& each) {
      const std::string algorithm = each.run->algorithm();
      return ChoiceCandidate{.algorithm = algorithm,
                             .median_us = summarise(each.rounds).median,
                             .predicted_us = predictions.predict_us(algorithm, what_)};
    };
    const Candidate& chosen = contenders_.front();
    ChoiceRow row{.what = what_, .chosen = candidate(chosen), .rounds = rounds};
    std::vector<RoundTimes> rivals;
    for (std::size_t i = 1; i < contenders_.size(); ++i) {
      const Candidate& each = contenders_[i];
      row.forced.push_back(candidate(each));
      // The algorithm that was chosen is not its own rival.
      rivals.push_back(is_chosen(each) ? RoundTimes{} : each.rounds);
      if (is_chosen(each)) row.noise = paired_ratio(chosen.rounds, each.rounds);
    }
    const Rivalry rivalry = best_rival(chosen.rounds, rivals);
    row.best = rivalry.best;
    row.ratio = rivalry.ratio;
    return row;
  }

  Runtime& runtime_;
  const ChoiceOptions& options_;
  const CollectiveCase what_;
  const CheckedResults sums_;
  std::vector<Candidate> contenders_;
  std::uint64_t wrong_ = 0;
};

}  // namespace

bool measure_choice(const std::vector<Runtime*>& runtimes,
                    const std::vector<std::string>& algorithms, const ChoiceOptions& options,
                    const std::function<void(const ChoiceRow&)>& report) {
  Runtime& runtime = *runtimes.front();
  const GoalChoice predictions(runtime);
  bool right = true;
  for (const std::size_t bytes : options.sizes) {
    CollectiveCase what = options.what;
    what.bytes = what.whole_bytes(bytes, runtime.world_size());
    ChoiceBench bench(runtimes, algorithms, options, what);
    report(bench.measure(predictions));
    right = right && bench.all_right();
  }
  return right;
}

}  // namespace kolo::bench
