#include "comm/coordinator/stall_table.h"

#include <gmock/gmock.h>

#include <fmt/format.h>

#include <chrono>
#include <span>

#include "comm/coordinator/stall_inspector.h"

namespace kolo {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

RankSet set_of(const std::vector<int>& ranks) {
  RankSet set;
  for (const int rank : ranks) set.add(rank);
  return set;
}

TEST(StallTable, ReadsLikeThis) {
  const std::vector<StalledTensor> tensors = {
      {.text = "'grad 7': all_reduce float32 [1024] sum",
       .age = milliseconds(61'700),
       .waiting = set_of({0, 2, 3}),
       .missing = set_of({1, 4})},
      {.text = "'loss': all_reduce float32 [1] sum",
       .age = minutes(17),
       .waiting = set_of({0}),
       .missing = set_of({1})},
  };
  const MissingRanks missing{
      .count = 3,
      .first = {{.rank = 1,
                 .last = {.text = "completed 'grad 6': all_reduce float32 [64] sum",
                          .age = milliseconds(62'300)}},
                {.rank = 4,
                 .last = {.text = "registered 'model'", .age = hours(5)},
                 .waits_for = {"'b'", "'c'"}},
                {.rank = 5}}};
  EXPECT_EQ(stall_table(tensors, missing, {}),
            R"(2 tensors have waited for ranks that have not submitted them:
  'grad 7': all_reduce float32 [1024] sum
    for 61 s; waiting: ranks 0, 2-3; missing: ranks 1, 4
  'loss': all_reduce float32 [1] sum
    for 17 min; waiting: rank 0; missing: rank 1
what the missing ranks did last:
  rank 1: completed 'grad 6': all_reduce float32 [64] sum, 62 s ago
  rank 4: registered 'model', 5 h ago
    now waits for 'b' and 1 more
  rank 5: nothing yet)");
}

TEST(StallTable, TellsOfRanksThatDoNotAnswer) {
  const std::vector<StalledTensor> tensors = {
      {.text = "'a'", .age = seconds(5), .waiting = set_of({0, 2})},
      {.text = "'b'", .age = seconds(4), .waiting = set_of({0}), .missing = set_of({2})}};
  const MissingRanks missing{.count = 1, .first = {{.rank = 2}}};
  const std::vector<MuteRank> mute = {{.rank = 1, .silence = milliseconds(5300), .stuck_in = "run"},
                                      {.rank = 3, .silence = seconds(4)}};
  EXPECT_EQ(stall_table(tensors, missing, mute),
            R"(2 tensors have waited for ranks that have not submitted them, or do not answer:
  'a'
    for 5 s; waiting: ranks 0, 2; no answer: ranks 1, 3
  'b'
    for 4 s; waiting: rank 0; missing: rank 2; no answer: ranks 1, 3
what the missing ranks did last:
  rank 2: nothing yet
the ranks that do not answer:
  rank 1: for 5 s, stuck in 'run', in a call that has not returned
  rank 3: for 4 s)");
  EXPECT_EQ(stall_table(std::span(tensors).first(1), {}, mute),
            R"(1 tensor has waited for ranks that have not submitted it, or do not answer:
  'a'
    for 5 s; waiting: ranks 0, 2; no answer: ranks 1, 3
the ranks that do not answer:
  rank 1: for 5 s, stuck in 'run', in a call that has not returned
  rank 3: for 4 s)");
}

TEST(StallTable, IsNoLongerThanAPersonReadsHoweverMuchIsStalled) {
  std::vector<int> odd, even;
  for (int rank = 0; rank < 4096; ++rank) (rank % 2 == 0 ? even : odd).push_back(rank);
  const std::string name = "'" + std::string(300, 'x') + "'";
  const std::vector<StalledTensor> tensors(
      300, {.text = name, .age = minutes(1), .waiting = set_of(even), .missing = set_of(odd)});
  MissingRanks missing{.count = odd.size()};
  for (const int rank : odd) {
    missing.first.push_back({.rank = rank,
                             .last = {.text = "completed " + name, .age = milliseconds::max()},
                             .waits_for = {name, name}});
  }
  const std::string table = stall_table(tensors, missing, {});
  EXPECT_THAT(table, HasSubstr("300 tensors have waited"));
  EXPECT_THAT(table, HasSubstr("missing: ranks 1, 3, 5, 7, 9, 11, 13, 15 and 2040 more"));
  EXPECT_THAT(table, HasSubstr("... and 292 more"));
  EXPECT_THAT(table, testing::EndsWith("... and 2032 more"));
  EXPECT_LE(std::ranges::count(table, '\n'), 60);
  std::size_t longest = 0;
  for (std::size_t begin = 0; begin < table.size();) {
    const std::size_t end = std::min(table.find('\n', begin), table.size());
    longest = std::max(longest, end - begin);
    begin = end + 1;
  }
  EXPECT_LE(longest, 140U);
}

TEST(ActivitySnapshot, IsShortAndAsOldAsTheLookThatFoundIt) {
  LastActivity note;
  const TimePoint start{};
  note.look(start);
  EXPECT_EQ(note.at(start), ActivitySnapshot{});
  const std::string text(100, 'a');
  note.completed(text);
  note.look(start + seconds(1));
  note.look(start + seconds(4));
  const ActivitySnapshot last = note.at(start + seconds(4));
  EXPECT_EQ(last.text, "completed " + std::string(64, 'a') + "...");
  EXPECT_EQ(last.age, seconds(3));
  note.did("registered 'b'");
  note.look(start + seconds(5));
  EXPECT_EQ(note.at(start + seconds(5)), (ActivitySnapshot{.text = "registered 'b'"}));
}

TEST(ActivitySnapshot, StaysWhenTheBucketGetsAnotherText) {
  LastActivity note;
  std::string text = "'x'";
  note.completed(text);
  note.keep();
  text = "'y'";
  note.look(TimePoint{});
  EXPECT_EQ(note.at(TimePoint{}).text, "completed 'x'");
}

/// Returns the times in seconds at which the inspector of two ranks logs a table within an hour.
/// Rank 0 waits for two tensors, from the start and from 40 s on, that rank 1 never submits.
std::vector<int> table_seconds(Duration warn_after) {
  StallInspector inspector(2, {.confirm_after = seconds(1), .warn_after = warn_after});
  std::vector<int> times;
  for (int second = 0; second <= 3600; ++second) {
    const TimePoint now = TimePoint{} + seconds(second);
    const ProposalKey a{1, 0}, b{2, 0};
    inspector.stalled(a);
    EXPECT_TRUE(inspector.next_query(now));
    std::vector<PendingKey> waiting = {{.key = a, .blocking = true, .text = "'a'\nmore"}};
    if (second >= 40) waiting.push_back({.key = b, .blocking = true, .text = "'b'"});
    const ActivitySnapshot act{.text = "completed 'z'", .age = seconds(second)};
    EXPECT_FALSE(inspector.report(combine({report_of({.rank = 0}, waiting, true),
                                           report_of({.rank = 1, .act = act}, {}, false)}),
                                  now));
    const auto warning = inspector.take_warning();
    if (!warning || warning->text.starts_with("still waiting")) continue;
    EXPECT_FALSE(warning->is_for_all_ranks);
    EXPECT_THAT(warning->text, HasSubstr("  'a'\n    for"));
    EXPECT_THAT(warning->text, HasSubstr("waiting: rank 0; missing: rank 1\n"));
    EXPECT_THAT(warning->text, HasSubstr("rank 1: completed 'z', "));
    times.push_back(second);
  }
  return times;
}

/// Makes an inquiry of three ranks, begun and answered at these seconds. Rank 1 does not answer.
/// Rank 0 waits for 'a', which rank 2 has or has not submitted.
std::optional<StallInspector::Finding> ask_beside_a_mute_rank(StallInspector& inspector, int begun,
                                                              int answered, bool has_submitted) {
  const ProposalKey a{1, 0};
  inspector.stalled(a);
  EXPECT_TRUE(inspector.next_query(TimePoint{} + seconds(begun)));
  std::vector<PendingKey> second;
  if (has_submitted) second.push_back({.key = a, .text = "'a'"});
  return inspector.report(
      combine({report_of({.rank = 0}, {{.key = a, .blocking = true, .text = "'a'"}}, true),
               report_of({.rank = 2}, second, false),
               {.mute = {{.rank = 1, .silence = seconds(answered)}}}}),
      TimePoint{} + seconds(answered));
}

// A wait for a rank that does not answer is no stall, because no rank is known to lack the tensor.
// That rank is lost, or its watchdog ends the job.
TEST(StallInspector, LogsATableAtOnceWhenARankIsMute) {
  StallInspector inspector(
      3, {.confirm_after = seconds(1), .warn_after = seconds(60), .stall_after = seconds(90)});
  std::vector<int> times;
  for (int second = 5; second <= 170; ++second) {
    EXPECT_FALSE(ask_beside_a_mute_rank(inspector, second == 5 ? 1 : second, second, true));
    const auto warning = inspector.take_warning();
    if (!warning) continue;
    times.push_back(second);
    EXPECT_EQ(warning->text,
              fmt::format("1 tensor has waited for ranks that have not submitted it, or do not "
                          "answer:\n  'a'\n    for {} s; waiting: rank 0; no answer: rank 1\n"
                          "the ranks that do not answer:\n  rank 1: for {} s",
                          second - 1, second));
  }
  EXPECT_THAT(times, testing::ElementsAre(5, 9, 17, 33, 65, 129));
}

// Both reports describe the time of their inquiry. However long rank 1 does not answer, a busy rank
// has the whole limit.
TEST(StallInspector, AMuteRankMakesNoOtherRankLate) {
  StallInspector inspector(3, {.confirm_after = seconds(1), .stall_after = seconds(7)});
  EXPECT_FALSE(ask_beside_a_mute_rank(inspector, 1, 9, false));
  EXPECT_FALSE(ask_beside_a_mute_rank(inspector, 7, 9, false));
  const auto finding = ask_beside_a_mute_rank(inspector, 8, 9, false);
  ASSERT_TRUE(finding);
  EXPECT_EQ(
      finding->error.what,
      "no progress for 7 s: rank 0 waits for 'a', which rank 2 has not submitted; rank 1 does "
      "not answer");
}

TEST(StallInspector, ConflictsNameMuteRanks) {
  const ProposalKey a{1, 0};
  StallInspector inspector(4, {.confirm_after = seconds(1)});
  inspector.conflict(a);
  ASSERT_TRUE(inspector.next_query({}));
  const auto finding =
      inspector.report(combine({report_of({.rank = 0}, {{.key = a, .text = "1"}}, false),
                                report_of({.rank = 1}, {{.key = a, .text = "2"}}, false),
                                {.mute = {{.rank = 2}, {.rank = 3}}}}),
                       TimePoint{});
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->error.what,
            "ranks disagree: rank 0 submits 1; rank 1 submits 2; ranks 2, 3 do not answer");
}

TEST(StallInspector, LogsATableAndAgainWhenTheWaitHasDoubled) {
  EXPECT_THAT(table_seconds(seconds(60)), testing::ElementsAre(60, 120, 240, 480, 960, 1920));
  EXPECT_THAT(table_seconds(Duration::max()), testing::IsEmpty());
}

}  // namespace
}  // namespace kolo
