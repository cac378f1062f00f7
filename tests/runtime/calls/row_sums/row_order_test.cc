#include "runtime/calls/row_sums/row_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>

#include "comm/base/half.h"

namespace kolo::test {
namespace {

using List = std::vector<std::int64_t>;

RowOrder order_of(const List& list, std::size_t height) {
  RowOrder order;
  order.assign(list, height);
  return order;
}

std::vector<float> sums_of(const List& list, std::size_t height, const std::vector<float>& rows,
                           std::size_t width, double scale = 1) {
  const RowOrder order = order_of(list, height);
  std::vector<float> sums(order.indices.size() * width);
  sum_rows(order.groups(), std::as_bytes(std::span(rows)).data(), width, DType::kFloat32, scale,
           std::as_writable_bytes(std::span(sums)).data());
  return sums;
}

TEST(RowOrder, KeepsTheOrderOfEqualIndices) {
  const RowOrder order = order_of({7, 2, 7, 5}, 8);
  EXPECT_EQ(order.indices, (List{2, 5, 7}));
  EXPECT_EQ(order.positions, (std::vector<std::size_t>{1, 3, 0, 2}));
  EXPECT_EQ(order.ends, (std::vector<std::size_t>{1, 2, 4}));
}

TEST(RowOrder, OfAnAscendingListIsTheList) {
  EXPECT_TRUE(order_of({}, 0).is_identity());
  EXPECT_TRUE(order_of({4}, 5).is_identity());
  const RowOrder order = order_of({0, 3, 4}, 5);
  EXPECT_TRUE(order.is_identity());
  EXPECT_EQ(order.indices, (List{0, 3, 4}));
  EXPECT_FALSE(order_of({3, 3}, 5).is_identity());
}

TEST(RowOrder, IsUsedAgain) {
  RowOrder order;
  order.assign(List{5, 1, 5, 0}, 6);
  order.assign(List{1, 2}, 6);
  EXPECT_TRUE(order.is_identity());
  EXPECT_EQ(order.count(), 2U);
  order.assign(List{2, 1}, 6);
  EXPECT_EQ(order.indices, (List{1, 2}));
  EXPECT_EQ(order.ends, (std::vector<std::size_t>{1, 2}));
}

// Indices have up to seven digits.
TEST(RowOrder, AgreesWithAMap) {
  std::mt19937_64 random(3);
  for (unsigned bits = 0; bits <= 62; ++bits) {
    const std::size_t height = (std::size_t{1} << bits) + bits % 2;
    List list(random() % 300);
    for (auto& index : list) {
      // A few different indices, with every digit set.
      const std::uint64_t drawn = bits < 6 ? random() : (random() % 40) * (height / 40);
      index = static_cast<std::int64_t>(drawn % height);
    }
    std::map<std::int64_t, std::vector<std::size_t>> expected;
    for (std::size_t i = 0; i < list.size(); ++i) expected[list[i]].push_back(i);
    const RowOrder order = order_of(list, height);
    ASSERT_EQ(order.indices.size(), expected.size()) << "bits " << bits;
    ASSERT_EQ(order.count(), list.size());
    std::size_t at = 0, row = 0;
    for (const auto& [index, positions] : expected) {
      ASSERT_EQ(order.indices[at], index) << "bits " << bits;
      for (const std::size_t position : positions) {
        ASSERT_EQ(order.is_identity() ? row : order.positions[row], position);
        ++row;
      }
      if (!order.is_identity()) {
        ASSERT_EQ(order.ends[at], row);
      }
      ++at;
    }
  }
}

TEST(RowOrder, FindsIndicesOutsideTheTable) {
  EXPECT_EQ(first_outside(List{0, 9}, 10), std::nullopt);
  EXPECT_EQ(first_outside(List{}, 0), std::nullopt);
  EXPECT_EQ(first_outside(List{0, 10, 11}, 10), 1U);
  EXPECT_EQ(first_outside(List{-1}, 10), 0U);
  EXPECT_EQ(first_outside(List{0}, 0), 0U);
}

TEST(RowSum, AddsInTheOrderOfTheList) {
  // 2^24 + 1 - 2^24 is 0 in float32 only in this order.
  const std::vector<float> rows{0x1p24F, 1, 7, 2, 1, 3, -0x1p24F, 4};
  EXPECT_EQ(sums_of({5, 1, 5, 5}, 6, rows, 2), (std::vector<float>{7, 2, 0, 8}));
}

TEST(RowSum, ScalesEveryRow) {
  EXPECT_EQ(sums_of({1, 0, 1}, 2, {4, 8, 6}, 1, 0.5), (std::vector<float>{4, 5}));
  EXPECT_EQ(sums_of({0, 1}, 2, {4, 8}, 1, 0.5), (std::vector<float>{2, 4}));
  EXPECT_EQ(sums_of({}, 2, {}, 3), std::vector<float>());
}

TEST(RowSum, RoundsSixteenBitFloatsOnce) {
  // 256 + 1 + 1 is 258 in bfloat16 if it is rounded once, and 256 if each sum is rounded.
  std::vector<BFloat16> rows{to_bfloat16(256.0F), to_bfloat16(1.0F), to_bfloat16(1.0F)};
  BFloat16 sum{};
  sum_rows(order_of({0, 0, 0}, 1).groups(), std::as_bytes(std::span(rows)).data(), 1,
           DType::kBFloat16, 1, std::as_writable_bytes(std::span(&sum, 1)).data());
  EXPECT_EQ(to_float(sum), 258.0F);
}

TEST(RowSum, SpreadsRowsOverATable) {
  std::vector<float> table(8, -1);
  const std::vector<float> rows{1, 2, 3, 4};
  spread_rows(List{1, 3}, std::as_bytes(std::span(rows)).data(), 2 * sizeof(float),
              std::as_writable_bytes(std::span(table)).data());
  EXPECT_EQ(table, (std::vector<float>{-1, -1, 1, 2, -1, -1, 3, 4}));
}

}  // namespace
}  // namespace kolo::test
