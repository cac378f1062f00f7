#include "comm/device/kernels/access.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace kolo::access {
namespace {

TEST(AccessTest, SplitTouchesEveryElementOnceAndGroupsAreAligned) {
  for (const std::size_t bytes : {1u, 2u, 4u, 8u}) {
    const std::size_t group = kBytes / bytes;
    for (std::size_t shift = 0; shift < group; ++shift) {
      for (const std::size_t count : {0u, 1u, 2u, 3u, 7u, 15u, 16u, 17u, 31u, 33u, 100u}) {
        SCOPED_TRACE(testing::Message() << bytes << " bytes, shift " << shift << ", " << count);
        const std::uintptr_t address = 4096 + shift * bytes;
        const Split parts = split(address, bytes, group, count);
        EXPECT_TRUE(parts.groups == 0 || is_aligned(address + parts.head * bytes, kBytes));
        EXPECT_LT(parts.head, group);
        EXPECT_LT(parts.tail, group);
        std::multiset<std::size_t> touched;
        for (std::size_t i = 0; i < parts.head + parts.tail; ++i) {
          touched.insert(single(parts, group, i));
        }
        for (std::size_t i = 0; i < parts.groups * group; ++i) touched.insert(parts.head + i);
        ASSERT_EQ(touched.size(), count);
        for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(touched.count(i), 1u);
      }
    }
  }
}

TEST(AccessTest, ElementsWithoutVectorsAreGroupsOfOne) {
  const Split parts = split(4097, 1, 1, 10);
  EXPECT_EQ(parts.head + parts.tail, 0u);
  EXPECT_EQ(parts.groups, 10u);
}

TEST(AccessTest, WidestAccessDividesAddressesAndDistances) {
  EXPECT_EQ(widest(0), kBytes);
  EXPECT_EQ(widest(4096 | 48), kBytes);
  EXPECT_EQ(widest(4096 | 40), 8u);
  EXPECT_EQ(widest(4100 | 48), 4u);
  EXPECT_EQ(widest(4096 | 6), 2u);
  EXPECT_EQ(widest(4097), 1u);
}

TEST(AccessTest, GridHasNoBlockWithoutWorkAndNoneThatWaits) {
  EXPECT_EQ(grid_blocks(3, 100), 3u);
  EXPECT_EQ(grid_blocks(1000, 100), 100u);
  EXPECT_EQ(ceil_divide(9, 4), 3u);
  EXPECT_EQ(ceil_divide(8, 4), 2u);
  EXPECT_EQ(ceil_divide(0, 4), 0u);
}

}  // namespace
}  // namespace kolo::access
