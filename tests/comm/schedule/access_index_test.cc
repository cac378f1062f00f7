#include "comm/schedule/access_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace kolo {
namespace {

/// Gives the answers of `AccessIndex` by searching all entries.
struct PlainAccesses {
  struct Entry {
    StepId step;
    Range range;
    Access access;
  };
  std::vector<Entry> all = {};

  void erase_inside(const Range& range) {
    std::erase_if(all, [&](const Entry& entry) {
      return range.offset <= entry.range.offset && entry.range.end() <= range.end();
    });
  }
  std::vector<std::pair<StepId, Access>> overlaps(const Range& range) const {
    std::vector<std::pair<StepId, Access>> found;
    for (const Entry& entry : all) {
      if (entry.range.overlaps(range)) found.emplace_back(entry.step, entry.access);
    }
    return found;
  }
};

TEST(AccessIndex, AreFoundByTheirRangesWhateverTheirLengths) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    AccessIndex accesses;
    PlainAccesses plain;
    for (StepId step = 0; step < 400; ++step) {
      const std::size_t most = std::size_t{1} << (random() % 10);
      const Range range{0, Region::kBucket, random() % 1000, random() % most};
      std::vector<std::pair<StepId, Access>> found;
      accesses.for_each_overlap(
          range, [&](StepId earlier, Access access) { found.emplace_back(earlier, access); });
      auto expected = plain.overlaps(range);
      std::ranges::sort(found);
      std::ranges::sort(expected);
      ASSERT_EQ(found, expected) << "seed " << seed << ", step " << step;
      const Access access = random() % 3 == 0 ? Access::kWrite : Access::kRead;
      if (access == Access::kWrite) {
        accesses.erase_inside(range);
        plain.erase_inside(range);
      }
      accesses.add(step, range, access);
      if (range.count > 0) plain.all.push_back({step, range, access});
    }
  }
}

}  // namespace
}  // namespace kolo
