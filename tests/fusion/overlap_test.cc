#include "fusion/overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace kolo {
namespace {

using Pair = std::pair<std::size_t, std::size_t>;

class Overlap : public testing::Test {
 protected:
  UsedMemory range(std::size_t begin, std::size_t end, std::size_t index,
                   bool is_written = true) const {
    return {&memory_[begin], end - begin, index, is_written};
  }

  char memory_[64] = {};
};

TEST_F(Overlap, IsFoundWhereverTwoRangesMeet) {
  EXPECT_EQ(find_overlap({}), std::nullopt);
  EXPECT_EQ(find_overlap({range(0, 8, 0), range(8, 16, 1)}), std::nullopt);
  EXPECT_EQ(find_overlap({range(8, 16, 0), range(0, 9, 1)}), Pair(0, 1));
  EXPECT_EQ(find_overlap({range(0, 8, 0), range(20, 30, 1), range(0, 8, 2)}), Pair(0, 2));
  // One range contains others that do not overlap each other.
  EXPECT_EQ(find_overlap({range(0, 40, 0, false), range(1, 2, 1, false), range(39, 41, 2)}),
            Pair(0, 2));
  EXPECT_EQ(find_overlap({range(4, 4, 0), range(0, 8, 1)}), std::nullopt) << "no bytes";
}

TEST_F(Overlap, OfRangesThatAreOnlyReadIsNone) {
  EXPECT_EQ(find_overlap({range(0, 8, 0, false), range(0, 8, 1, false)}), std::nullopt);
  EXPECT_EQ(find_overlap({range(0, 8, 0, false), range(4, 6, 1)}), Pair(0, 1));
  EXPECT_EQ(find_overlap({range(0, 8, 0), range(4, 6, 1, false)}), Pair(0, 1));
}

TEST_F(Overlap, IsFoundExactlyWherePairsOverlap) {
  std::mt19937 random(1);
  int found = 0;
  for (int turn = 0; turn < 2000; ++turn) {
    std::vector<UsedMemory> ranges;
    std::vector<Pair> ends;
    for (std::size_t i = 0; i < 2 + random() % 4; ++i) {
      const std::size_t begin = random() % 60, end = begin + random() % std::min(12UL, 61 - begin);
      ends.emplace_back(begin, end);
      ranges.push_back(range(begin, end, i, random() % 2 == 0));
    }
    bool any = false;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        any |= std::max(ends[i].first, ends[j].first) < std::min(ends[i].second, ends[j].second) &&
               (ranges[i].is_written || ranges[j].is_written);
      }
    }
    EXPECT_EQ(find_overlap(ranges).has_value(), any) << "turn " << turn;
    found += any ? 1 : 0;
  }
  EXPECT_GT(found, 200);
  EXPECT_LT(found, 1800);
}

}  // namespace
}  // namespace kolo
