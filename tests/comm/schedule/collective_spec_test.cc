#include "comm/schedule/collective_spec.h"

#include <gmock/gmock.h>

#include <fmt/format.h>

namespace kolo {
namespace {

using testing::ElementsAre;

/// Returns the parts as texts: "offset+count contributors>receivers".
std::vector<std::string> texts(const CollectiveSpec& spec) {
  std::vector<std::string> all;
  for (const CollectiveSpec::Part& part : spec.parts()) {
    std::string text = fmt::format("{}+{} ", part.extent.offset, part.extent.count);
    for (const int rank : part.contributors) text += std::to_string(rank);
    text += ">";
    for (const int rank : part.receivers) text += std::to_string(rank);
    all.push_back(text);
  }
  return all;
}

const std::vector<std::size_t> kCounts{4, 0, 7};

TEST(CollectiveSpec, HasThePartsOfItsCollective) {
  EXPECT_THAT(texts(CollectiveSpec::all_reduce(3, 11)), ElementsAre("0+11 012>012"));
  EXPECT_THAT(texts(CollectiveSpec::reduce(1, 3, 11)), ElementsAre("0+11 012>1"));
  EXPECT_THAT(texts(CollectiveSpec::broadcast(1, 3, 11)), ElementsAre("0+11 1>012"));
  EXPECT_THAT(texts(CollectiveSpec::reduce_scatter(kCounts)),
              ElementsAre("0+4 012>0", "4+0 012>1", "4+7 012>2"));
  EXPECT_THAT(texts(CollectiveSpec::all_gather(kCounts)),
              ElementsAre("0+4 0>012", "4+0 1>012", "4+7 2>012"));
  EXPECT_THAT(texts(CollectiveSpec::gather(1, kCounts)),
              ElementsAre("0+4 0>1", "4+0 1>1", "4+7 2>1"));
  EXPECT_THAT(texts(CollectiveSpec::scatter(2, kCounts)),
              ElementsAre("0+4 2>0", "4+0 2>1", "4+7 2>2"));
  EXPECT_THAT(texts(CollectiveSpec::all_to_all(2, std::vector<std::size_t>{1, 2, 3, 4})),
              ElementsAre("0+1 0>0", "1+2 0>1", "3+3 1>0", "6+4 1>1"));
}

TEST(CollectiveSpec, HasEqualPartsHoweverTheyAreGiven) {
  const std::vector<std::size_t> fives(4, 5);
  for (const PartExtents& counts : {PartExtents(4, 5), PartExtents(fives)}) {
    const CollectiveSpec spec = CollectiveSpec::all_to_all(2, counts);
    EXPECT_TRUE(spec.has_equal_parts());
    EXPECT_EQ(spec.count(), 20u);
    EXPECT_THAT(texts(spec), ElementsAre("0+5 0>0", "5+5 0>1", "10+5 1>0", "15+5 1>1"));
  }
  EXPECT_FALSE(CollectiveSpec::all_gather(kCounts).has_equal_parts());
  EXPECT_THAT(texts(CollectiveSpec::all_gather(PartExtents(std::vector<std::size_t>{1, 3}, 2))),
              ElementsAre("0+2 0>01", "2+6 1>01"));
}

TEST(CollectiveSpec, OfSeveralTensorsHasThePartsOfEach) {
  const std::vector<std::size_t> equal(3, 2);
  const CollectiveSpec spec = CollectiveSpec::of_tensors(
      {CollectiveSpec::gather(1, kCounts), CollectiveSpec::gather(1, equal)});
  EXPECT_THAT(texts(spec),
              ElementsAre("0+4 0>1", "4+0 1>1", "4+7 2>1", "11+2 0>1", "13+2 1>1", "15+2 2>1"));
  EXPECT_THAT(texts(merged(spec)), ElementsAre("0+6 0>1", "6+2 1>1", "8+9 2>1"));
  const CollectiveSpec even = merged(CollectiveSpec::of_tensors(
      {CollectiveSpec::gather(1, equal), CollectiveSpec::gather(1, equal)}));
  EXPECT_TRUE(even.has_equal_parts());
  EXPECT_THAT(texts(even), ElementsAre("0+4 0>1", "4+4 1>1", "8+4 2>1"));
}

TEST(CollectiveSpec, IsMutualIfEachRankNeedsAllOthers) {
  const std::vector<std::size_t> ones(3, 1), one(1, 0);
  EXPECT_TRUE(CollectiveSpec::all_reduce(3, 1).is_mutual());
  EXPECT_TRUE(CollectiveSpec::reduce_scatter(ones).is_mutual());
  EXPECT_TRUE(CollectiveSpec::all_gather(ones).is_mutual());
  EXPECT_FALSE(CollectiveSpec::reduce_scatter(kCounts).is_mutual());
  EXPECT_FALSE(CollectiveSpec::all_gather(kCounts).is_mutual());
  EXPECT_FALSE(CollectiveSpec::broadcast(0, 3, 1).is_mutual());
  EXPECT_FALSE(CollectiveSpec::reduce(0, 3, 1).is_mutual());
  EXPECT_FALSE(CollectiveSpec::gather(0, ones).is_mutual());
  EXPECT_FALSE(CollectiveSpec::scatter(0, ones).is_mutual());
  EXPECT_TRUE(CollectiveSpec::gather(0, one).is_mutual());
  // A rank's part for itself may be empty, and a pair's part may be in only one tensor.
  const CollectiveSpec there = CollectiveSpec::all_to_all(2, std::vector<std::size_t>{0, 1, 0, 0});
  const CollectiveSpec back = CollectiveSpec::all_to_all(2, std::vector<std::size_t>{0, 0, 1, 0});
  EXPECT_FALSE(there.is_mutual());
  EXPECT_TRUE(CollectiveSpec::of_tensors({there, back}).is_mutual());
  const auto message = [](int from, int to) {
    return CollectiveSpec::Part{{0, 1}, RankRange::one(from), RankRange::one(to)};
  };
  EXPECT_FALSE(CollectiveSpec::of_parts(2, {message(0, 1)}).is_mutual());
  EXPECT_TRUE(CollectiveSpec::of_parts(2, {message(0, 1), message(1, 0)}).is_mutual());
}

}  // namespace
}  // namespace kolo
