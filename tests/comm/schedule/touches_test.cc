#include "comm/schedule/touches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <utility>
#include <vector>

namespace kolo {
namespace {

/// As `Touches`, by looking at all of them.
struct PlainTouches {
  struct Touch {
    StepId step;
    Range range;
    Access access;
  };
  std::vector<Touch> all = {};

  void erase_inside(const Range& range) {
    std::erase_if(all, [&](const Touch& touch) {
      return range.offset <= touch.range.offset && touch.range.end() <= range.end();
    });
  }
  std::vector<std::pair<StepId, Access>> overlaps(const Range& range) const {
    std::vector<std::pair<StepId, Access>> found;
    for (const Touch& touch : all) {
      if (touch.range.overlaps(range)) found.emplace_back(touch.step, touch.access);
    }
    return found;
  }
};

TEST(Touches, AreFoundByTheirRangesWhateverTheirLengths) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    Touches touches;
    PlainTouches plain;
    for (StepId step = 0; step < 400; ++step) {
      const std::size_t most = std::size_t{1} << (random() % 10);
      const Range range{0, Region::kBucket, random() % 1000, random() % most};
      std::vector<std::pair<StepId, Access>> found;
      touches.for_each_overlap(
          range, [&](StepId earlier, Access access) { found.emplace_back(earlier, access); });
      auto expected = plain.overlaps(range);
      std::ranges::sort(found);
      std::ranges::sort(expected);
      ASSERT_EQ(found, expected) << "seed " << seed << ", step " << step;
      const Access access = random() % 3 == 0 ? Access::kWrite : Access::kRead;
      if (access == Access::kWrite) {
        touches.erase_inside(range);
        plain.erase_inside(range);
      }
      touches.add(step, range, access);
      if (range.count > 0) plain.all.push_back({step, range, access});
    }
  }
}

}  // namespace
}  // namespace kolo
