// Tests how reports of many ranks are combined to one of bounded size, and the answer to an
// inquiry.

#include "comm/coordinator/aggregated_report.h"

#include <gmock/gmock.h>

#include <random>

namespace kolo {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

RankSet ranks_from(int first, int last) {
  RankSet set;
  for (int rank = first; rank <= last; ++rank) set.add(rank);
  return set;
}

TEST(RankSet, JoinsNeighboursWhateverTheOrder) {
  std::vector<int> ranks(100);
  for (int rank = 0; rank < 100; ++rank) ranks[static_cast<std::size_t>(rank)] = rank;
  std::mt19937 random(1);
  std::ranges::shuffle(ranks, random);
  RankSet set;
  for (const int rank : ranks) set.add(rank);
  EXPECT_THAT(set.ranges(), ElementsAre(RankSet::Range{0, 99}));
  EXPECT_EQ(set.count(), 100U);
  EXPECT_TRUE(set.lists(ranks_from(3, 99)));
  EXPECT_FALSE(ranks_from(3, 99).lists(set));
}

TEST(RankSet, CountsWhatItDoesNotList) {
  RankSet even;
  for (int rank = 0; rank < 1000; rank += 2) even.add(rank);
  EXPECT_THAT(even.ranges(), SizeIs(RankSet::kMostRanges));
  EXPECT_EQ(even.count(), 500U);
  EXPECT_EQ(even.listed(), RankSet::kMostRanges);
  EXPECT_TRUE(even.is_valid());
  EXPECT_EQ(ranges_text(even), "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 492 more");
}

TEST(RankSet, IsWrittenInFullWhileItIsSmall) {
  EXPECT_EQ(ranks_text(3), "rank 3");
  EXPECT_EQ(ranks_text(ranks_from(0, 2)), "ranks 0, 1, 2");
  EXPECT_EQ(ranges_text(ranks_from(0, 2)), "ranks 0-2");
  EXPECT_EQ(ranks_text(ranks_from(0, 4095)), "ranks 0-4095");
}

PendingKey pending_key(std::uint64_t hash, bool blocking = true) {
  return {.key = {hash, 0}, .blocking = blocking, .text = "'" + std::to_string(hash) + "'"};
}

std::vector<std::byte> bytes_of(const AggregatedReport& report) {
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  write(writer, report);
  return bytes;
}

// For any tree, the combined report is the same: ranks with equal reports share an entry, with the
// last actions of the first few ranks.
TEST(AggregatedReport, DoesNotDependOnTheOrderOfCombining) {
  std::vector<AggregatedReport> reports;
  for (int rank = 0; rank < 40; ++rank) {
    const std::uint64_t kind = static_cast<std::uint64_t>(rank % 3);
    reports.push_back(report_of({.rank = rank, .act = {.text = "act " + std::to_string(rank)}},
                                {pending_key(7), pending_key(1 + kind, kind == 0)}, kind != 1));
  }
  const AggregatedReport at_once = combine(reports);
  ASSERT_THAT(at_once.alike, SizeIs(3));
  EXPECT_THAT(at_once.alike[0].acts, SizeIs(14));
  EXPECT_EQ(at_once.alike[0].acts[1].act.text, "act 3");
  EXPECT_EQ(at_once.ranks(), 40U);
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    std::vector<AggregatedReport> parts = reports;
    while (parts.size() > 1) {
      std::ranges::shuffle(parts, random);
      const std::size_t taken = std::min<std::size_t>(parts.size(), 2 + random() % 5);
      std::vector<AggregatedReport> some(parts.end() - static_cast<std::ptrdiff_t>(taken),
                                         parts.end());
      parts.resize(parts.size() - taken);
      parts.push_back(combine(std::move(some)));
    }
    EXPECT_EQ(parts[0], at_once) << "seed " << seed;
  }
}

// If there are too many different entries, the report keeps stragglers and the majority.
TEST(AggregatedReport, KeepsStragglersAndTheManyWhenThereAreTooManyKinds) {
  constexpr int kPrefixes = 200;
  std::vector<PendingKey> all;
  for (std::uint64_t hash = 1; hash <= kPrefixes; ++hash) all.push_back(pending_key(hash));
  std::vector<AggregatedReport> reports;
  for (int rank = 0; rank < 2 * kPrefixes; ++rank) {
    const auto count = static_cast<std::ptrdiff_t>(std::min(rank, kPrefixes));
    reports.push_back(report_of({.rank = 1000 - rank}, {all.begin(), all.begin() + count}, true));
  }
  const AggregatedReport report = combine(std::move(reports));
  EXPECT_THAT(report.alike, SizeIs(AggregatedReport::kMostKinds));
  const auto find = [&](std::size_t pending) {
    return std::ranges::find_if(report.alike,
                                [&](const auto& ranks) { return ranks.pending.size() == pending; });
  };
  ASSERT_NE(find(0), report.alike.end());
  EXPECT_EQ(find(0)->ranks, RankSet(1000));
  ASSERT_NE(find(kPrefixes), report.alike.end());
  EXPECT_EQ(find(kPrefixes)->ranks, ranks_from(1000 - 2 * kPrefixes + 1, 1000 - kPrefixes));
  EXPECT_LT(report.ranks(), 2U * kPrefixes);
}

// Proposals beyond a limit are unknown. A rank that waits for an unknown proposal may proceed.
TEST(AggregatedReport, KnowsNothingBeyondTooManyProposals) {
  std::vector<PendingKey> many;
  for (std::uint64_t hash = 0; hash < AggregatedReport::kMostProposals + 10; ++hash) {
    many.push_back(pending_key(hash));
  }
  const AggregatedReport all =
      combine({report_of({.rank = 0}, many, true), report_of({.rank = 1}, {pending_key(0)}, true),
               report_of({.rank = 2}, {pending_key(5000)}, true)});
  EXPECT_EQ(all.unknown_from, (ProposalKey{AggregatedReport::kMostProposals, 0}));
  ASSERT_THAT(all.alike, SizeIs(3));
  EXPECT_FALSE(all.alike[0].all_wait);
  EXPECT_THAT(all.alike[0].pending, SizeIs(AggregatedReport::kMostProposals));
  EXPECT_TRUE(all.alike[1].all_wait);
  EXPECT_FALSE(all.alike[2].all_wait);
}

TEST(AggregatedReport, OfThousandsIsAsLongAsThatOfAFew) {
  std::vector<PendingKey> keys;
  for (std::uint64_t hash = 1; hash <= 300; ++hash) keys.push_back(pending_key(hash));
  const auto size_of = [&](int ranks) {
    std::vector<AggregatedReport> reports;
    for (int rank = 0; rank < ranks; ++rank) {
      const bool is_late = rank == ranks / 2;
      reports.push_back(report_of({.rank = rank, .act = {.text = "completed 'x'"}},
                                  is_late ? std::vector<PendingKey>{} : keys, !is_late));
    }
    return bytes_of(combine(std::move(reports))).size();
  };
  EXPECT_LT(size_of(2000), size_of(40) + 64);
  EXPECT_LT(size_of(40), size_of(2) + 1024);
}

TEST(Inquiry, IsAnsweredOnceWhenAllChildrenHave) {
  const CombiningTree tree{
      .rank = 0, .root = 0, .parent = -1, .children = {1, 2}, .child_leaders = {}};
  Inquiry inquiry(tree);
  const auto report = [](int rank) { return report_of({.rank = rank}, {}, false); };
  EXPECT_FALSE(inquiry.is_open());
  inquiry.begin(1, report(0));
  inquiry.report(1, 1, report(1));
  inquiry.report(1, 1, report(1));  // the repetition has no effect
  EXPECT_THAT(inquiry.silent_children(), ElementsAre(2));
  EXPECT_FALSE(inquiry.take_complete());

  inquiry.begin(2, report(0));  // ends the first inquiry
  inquiry.report(2, 1, report(2));
  EXPECT_THAT(inquiry.silent_children(), ElementsAre(1, 2));
  inquiry.report(2, 2, report(2));
  inquiry.report(1, 2, report(1));
  const auto complete = inquiry.take_complete();
  ASSERT_TRUE(complete);
  EXPECT_EQ(complete->ranks(), 3U);
  EXPECT_FALSE(inquiry.take_complete());
  EXPECT_FALSE(inquiry.is_open());
  inquiry.report(1, 2, report(1));  // too late: the inquiry has ended
  EXPECT_FALSE(inquiry.is_open());
}

TEST(Inquiry, IsAnsweredWithoutAChildThatIsGivenUp) {
  const CombiningTree tree{
      .rank = 0, .root = 0, .parent = -1, .children = {1, 2}, .child_leaders = {}};
  Inquiry inquiry(tree);
  const auto report = [](int rank) { return report_of({.rank = rank}, {}, false); };
  const MuteRank mute{.rank = 1, .silence = std::chrono::seconds(4), .stuck_in = "run"};
  inquiry.begin(1, report(0));
  inquiry.give_up(mute);
  inquiry.give_up(mute);            // the repetition has no effect
  inquiry.report(1, 1, report(1));  // too late for this inquiry
  EXPECT_FALSE(inquiry.take_complete());
  inquiry.report(2, 1, combine({report(2), {.mute = {{.rank = 5}}}}));
  const auto complete = inquiry.take_complete();
  ASSERT_TRUE(complete);
  EXPECT_EQ(complete->ranks(), 2U);
  EXPECT_THAT(complete->mute, ElementsAre(mute, MuteRank{.rank = 5}));
}

TEST(AggregatedReport, NamesTheFirstOfManyMuteRanks) {
  std::vector<AggregatedReport> reports;
  for (int rank = 99; rank >= 0; --rank) reports.push_back({.mute = {{.rank = rank}}});
  const AggregatedReport report = combine(std::move(reports));
  EXPECT_THAT(report.mute, SizeIs(AggregatedReport::kMostMute));
  EXPECT_EQ(report.mute.back().rank, 15);
}

}  // namespace
}  // namespace kolo
