#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "benchmarks/common/samples.h"

namespace kolo::bench {
namespace {

constexpr int kTurns = 12;

/// A machine on which the champion takes 100 us, and each challenger its own time. Times spread
/// evenly by `noise`.
class Machine {
 public:
  Machine(std::uint64_t seed, std::vector<double> challengers_us)
      : random_(seed), challengers_us_(std::move(challengers_us)) {}

  double noise = 0.02;
  /// The load of each trial: all times are multiplied by it.
  std::vector<double> loads = {};
  /// The share of times that another program makes ten times as long.
  double disturbed = 0;
  /// The number of times that the links are found busy.
  int busy_links = 0;
  int trials = 0;

  Verdict find() {
    return find_better(
        challengers_us_.size(), [this](const auto& tried) { return measure(tried); },
        [this] { return busy_links-- <= 0; });
  }

 private:
  Trial measure(const std::vector<std::size_t>& tried) {
    const auto number = static_cast<std::size_t>(trials++);
    const double load = number < loads.size() ? loads[number] : 1;
    Trial trial;
    const auto add = [&](double us) {
      RoundTimes times;
      for (int round = 0; round < kTurns; ++round) {
        std::uniform_real_distribution<> spread(1 - noise, 1 + noise), chance(0, 1);
        times.push_back(us * load * spread(random_) * (chance(random_) < disturbed ? 10 : 1));
      }
      trial.calls.push_back(summarise(times));
      trial.rounds.push_back(std::move(times));
    };
    add(100);
    for (const std::size_t i : tried) add(challengers_us_.at(i));
    return trial;
  }

  std::mt19937_64 random_;
  const std::vector<double> challengers_us_;
};

TEST(FindBetter, TheFastestIsKeptWithItsGain) {
  Machine machine(1, {100, 90, 80, 85});
  const Verdict verdict = machine.find();
  EXPECT_EQ(verdict.outcome, Outcome::kKept);
  EXPECT_EQ(verdict.best, 2u);
  EXPECT_NEAR(verdict.gain.median, 1.25, 0.03);
  EXPECT_NEAR(verdict.champion_us, 100, 2);
  EXPECT_NEAR(verdict.best_us, 80, 2);
  EXPECT_EQ(verdict.attempts, 1);
  EXPECT_EQ(machine.trials, 2);
}

TEST(FindBetter, AGainBelowTheLeastIsNotKept) {
  for (const auto& [us, outcome] : std::vector<std::pair<double, Outcome>>{
           {94, Outcome::kKept}, {96, Outcome::kNotFaster}, {150, Outcome::kNotFaster}}) {
    Machine machine(2, {us});
    machine.noise = 0.001;
    EXPECT_EQ(machine.find().outcome, outcome) << us;
  }
}

// If eight challengers are equal, the luckiest one seems faster until it is measured again.
TEST(FindBetter, LuckIsNotKept) {
  int seemed = 0, kept = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Machine machine(seed, std::vector<double>(8, 100));
    machine.noise = 0.25;
    kept += machine.find().outcome == Outcome::kKept;
    seemed += machine.trials > 1;
  }
  EXPECT_GE(seemed, 100);
  EXPECT_LE(kept, 4);
}

TEST(FindBetter, AGainWithinTheSpreadIsNotKept) {
  Machine machine(3, {93});
  machine.noise = 0.4;
  EXPECT_EQ(machine.find().outcome, Outcome::kNotFaster);
}

TEST(FindBetter, ABusyMachineIsMeasuredAgainAndThenGivenUp) {
  Machine machine(4, {50, 60});
  machine.disturbed = 0.6;
  const Verdict verdict = machine.find();
  EXPECT_EQ(verdict.outcome, Outcome::kBusy);
  EXPECT_EQ(verdict.attempts, kMostAttempts);
  EXPECT_EQ(machine.trials, kMostAttempts);
}

// Times under a load agree with each other, but not with those after its end.
TEST(FindBetter, ALoadThatEndsMeanwhileIsSeen) {
  Machine machine(5, {50});
  machine.loads = {2, 1};
  const Verdict verdict = machine.find();
  EXPECT_EQ(verdict.outcome, Outcome::kKept);
  EXPECT_EQ(verdict.attempts, 2);
  EXPECT_NEAR(verdict.champion_us, 100, 2) << "without load";
  EXPECT_EQ(machine.trials, 4);
}

TEST(FindBetter, ALoadThatComesBackInEveryAttemptKeepsNothing) {
  Machine machine(6, {50});
  machine.loads = {2, 1, 2, 1, 2, 1};
  EXPECT_EQ(machine.find().outcome, Outcome::kBusy);
}

// A load that is the same in all trials shows in the links only.
TEST(FindBetter, NothingIsKeptWhileLinksAreBusy) {
  Machine machine(7, {50});
  machine.busy_links = kMostAttempts - 1;
  const Verdict verdict = machine.find();
  EXPECT_EQ(verdict.outcome, Outcome::kKept);
  EXPECT_EQ(verdict.attempts, kMostAttempts);
  machine.busy_links = kMostAttempts;
  EXPECT_EQ(machine.find().outcome, Outcome::kBusy);
  Machine equal(8, {100});
  equal.busy_links = kMostAttempts;
  EXPECT_EQ(equal.find().outcome, Outcome::kNotFaster) << "nothing is to be kept";
}

}  // namespace
}  // namespace kolo::bench
