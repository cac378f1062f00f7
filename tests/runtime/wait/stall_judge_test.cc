#include "runtime/wait/watchdog.h"

#include <gtest/gtest.h>

#include <random>

namespace kolo {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using News = StallJudge::News;

/// A judge that is asked at every interval.
class Looks {
 public:
  explicit Looks(const StallJudge::Limits& limits) : judge_(limits) { clock_.advance(seconds(9)); }

  Pulse pulse;
  bool is_driven = true;

  StallJudge::Verdict next() { return next(judge_.interval()); }
  StallJudge::Verdict next(Duration after) {
    clock_.advance(after);
    return judge_.look(is_driven, pulse.read(), clock_.now());
  }
  /// Returns the first news within `looks` looks, if any.
  StallJudge::Verdict first(int looks) {
    for (int i = 0; i < looks; ++i) {
      const StallJudge::Verdict verdict = next();
      if (verdict.news != News::kNone) return verdict;
    }
    return {};
  }
  Duration interval() const { return judge_.interval(); }

 private:
  StallJudge judge_;
  ManualClock clock_;
};

TEST(Pulse, ShowsTheVerbAndThatItGoesOn) {
  Pulse pulse;
  for (const auto& [verb, name] : {std::pair{EngineVerb::kMark, "mark"},
                                   {EngineVerb::kRun, "run"},
                                   {EngineVerb::kComplete, "complete"},
                                   {EngineVerb::kWait, "wait"}}) {
    const Pulse::Reading before = pulse.read();
    pulse.beat(verb);
    EXPECT_EQ(pulse.read().beats, before.beats + 1);
    EXPECT_EQ(to_string(pulse.read().verb), name);
  }
}

TEST(StallJudge, WarnsOfAThreadThatStaysInOneVerb) {
  Looks looks({.warn_after = seconds(8)});
  EXPECT_EQ(looks.interval(), seconds(1));
  looks.pulse.beat(EngineVerb::kRun);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(looks.next().news, News::kNone) << i;
  const StallJudge::Verdict verdict = looks.next();
  EXPECT_EQ(verdict.news, News::kStuck);
  EXPECT_EQ(verdict.verb, EngineVerb::kRun);
  EXPECT_EQ(verdict.stuck_for, seconds(8));
}

TEST(StallJudge, WarnsAgainWhenTheTimeHasDoubled) {
  Looks looks({.warn_after = seconds(8)});
  std::vector<Duration> times;
  for (int i = 0; i < 100; ++i) {
    const StallJudge::Verdict verdict = looks.next();
    if (verdict.news == News::kStuck) times.push_back(verdict.stuck_for);
  }
  EXPECT_EQ(times, (std::vector<Duration>{seconds(8), seconds(16), seconds(32), seconds(64)}));
}

TEST(StallJudge, SaysOnceThatItMovesAgain) {
  Looks looks({.warn_after = seconds(8)});
  looks.pulse.beat(EngineVerb::kWait);
  EXPECT_EQ(looks.first(20).news, News::kStuck);
  looks.pulse.beat(EngineVerb::kMark);
  const StallJudge::Verdict verdict = looks.next();
  EXPECT_EQ(verdict.news, News::kMovesAgain);
  EXPECT_EQ(verdict.verb, EngineVerb::kWait);
  EXPECT_EQ(verdict.stuck_for, seconds(8));
  for (int i = 0; i < 7; ++i) EXPECT_EQ(looks.next().news, News::kNone) << i;
  EXPECT_EQ(looks.next().news, News::kStuck) << "it is stuck anew";
  looks.is_driven = false;
  EXPECT_EQ(looks.next().news, News::kMovesAgain) << "it has left";
}

TEST(StallJudge, IsSilentWhileNobodyDrives) {
  Looks looks({.warn_after = seconds(8), .give_up_after = seconds(20)});
  looks.is_driven = false;
  EXPECT_EQ(looks.first(1000).news, News::kNone);
}

TEST(StallJudge, GivesUpOnce) {
  Looks looks({.warn_after = seconds(8), .give_up_after = seconds(20)});
  std::vector<std::pair<News, Duration>> news;
  for (int round = 0; round < 2; ++round) {
    looks.pulse.beat(EngineVerb::kRun);
    for (int i = 0; i < 30; ++i) {
      const StallJudge::Verdict verdict = looks.next();
      if (verdict.news != News::kNone) news.emplace_back(verdict.news, verdict.stuck_for);
    }
  }
  EXPECT_EQ(news, (std::vector<std::pair<News, Duration>>{{News::kStuck, seconds(8)},
                                                          {News::kStuck, seconds(16)},
                                                          {News::kGiveUp, seconds(20)},
                                                          {News::kMovesAgain, seconds(29)},
                                                          {News::kStuck, seconds(8)},
                                                          {News::kStuck, seconds(16)}}));
}

TEST(StallJudge, CountsNoTimeInWhichTheProcessWasStopped) {
  Looks looks({.warn_after = seconds(8), .give_up_after = seconds(60)});
  looks.next();
  EXPECT_EQ(looks.next(seconds(3600)).news, News::kNone);
  looks.pulse.beat(EngineVerb::kMark);
  EXPECT_EQ(looks.first(8).news, News::kNone);
}

// The test compares random sequences of looks with a direct computation.
TEST(StallJudge, IsRightInAnySequence) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto pick = [&](int below) { return static_cast<int>(random() % unsigned(below)); };
    const Duration warn_after = milliseconds(8 * (1 + pick(1000)));
    const Duration give_up_after = pick(2) == 0 ? Duration::max() : warn_after * (1 + pick(5));
    Looks looks({.warn_after = warn_after, .give_up_after = give_up_after});
    const int steadiness = 1 + pick(60);
    Duration stuck{}, next_warning = warn_after;
    bool was_driven = false, has_spoken = false, has_given_up = false;
    Pulse::Reading seen;
    for (int i = 0; i < 500; ++i) {
      if (pick(steadiness) == 0) looks.pulse.beat(static_cast<EngineVerb>(pick(8)));
      if (pick(2 * steadiness) == 0) looks.is_driven = !looks.is_driven;
      const Duration passed = looks.interval() / 4 * (1 + pick(8));
      const StallJudge::Verdict verdict = looks.next(passed);
      const bool is_stuck = looks.is_driven && was_driven && seen == looks.pulse.read();
      was_driven = looks.is_driven;
      seen = looks.pulse.read();
      stuck = is_stuck ? stuck + passed : Duration{};
      if (!is_stuck) {
        EXPECT_EQ(verdict.news, has_spoken ? News::kMovesAgain : News::kNone);
        has_spoken = false;
        next_warning = warn_after;
        continue;
      }
      const bool gives_up = !has_given_up && stuck >= give_up_after;
      const bool warns = stuck >= next_warning;
      EXPECT_EQ(verdict.news, gives_up ? News::kGiveUp : warns ? News::kStuck : News::kNone);
      EXPECT_EQ(verdict.stuck_for, stuck);
      while (next_warning <= stuck) next_warning *= 2;
      has_given_up |= gives_up;
      has_spoken |= gives_up || warns;
    }
  }
}

}  // namespace
}  // namespace kolo
