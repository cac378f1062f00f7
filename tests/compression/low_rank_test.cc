#include "compression/kernels/low_rank.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/compression/plain_matrix.h"

namespace kolo::test {
namespace {

constexpr std::uint32_t kSeed = 31;

MatrixPart any_part(std::mt19937& random) {
  const std::size_t columns = 1 + random() % 2500;
  return matrix_part(random() % 5000, 1 + random() % 40000, columns, 1 + random() % 9);
}

TEST(LowRankTest, PartsBecomeMatrices) {
  std::mt19937 random(kSeed);
  const MatrixPart whole = matrix_part(0, 200, 20, 3);
  EXPECT_EQ(whole.rows(), 10u);
  EXPECT_EQ(whole.left_count(), 30u);
  EXPECT_EQ(whole.right_count(), 60u);
  const MatrixPart middle = matrix_part(33, 100, 20, 3);  // 7 + 4 * 20 + 13 elements
  EXPECT_EQ(middle.head, 13u);
  EXPECT_EQ(middle.rows(), 6u);
  EXPECT_EQ(matrix_part(0, 200, 20, 100).left_count(), 200u);  // no smaller: one column
  EXPECT_EQ(matrix_part(15, 10, 20, 1).columns, 1u);
  EXPECT_EQ(matrix_part(0, 200, 1, 4).right_count(), 1u);
  for (int round = 0; round < 1000; ++round) {
    const MatrixPart part = any_part(random);
    ASSERT_LE(part.left_count(), part.count);
    ASSERT_LE(part.right_count(), part.count);
    ASSERT_LE(part.rank, std::min(part.rows(), part.columns));
  }
}

// A sum of n products has an error of at most n + 1 roundings of the product of the norms.
TEST(LowRankTest, ProductsEqualPlainOnes) {
  std::mt19937 random(kSeed);
  for (int round = 0; round < 30; ++round) {
    const MatrixPart part = any_part(random);
    SCOPED_TRACE(std::to_string(part.count) + " elements, " + std::to_string(part.columns) +
                 " columns, head " + std::to_string(part.head));
    std::vector<float> elements = numbers(random, part.count);
    std::vector<float> left = numbers(random, part.left_count());
    std::vector<float> right = numbers(random, part.right_count());
    const Matrix m = matrix_of(part, elements), l = rows_of(left, part.rank),
                 r = rows_of(right, part.columns);
    const double of_m = norm(m), of_l = norm(l), of_r = norm(r);
    const auto bound = [&](std::size_t terms) {
      return static_cast<double>(terms + 2) * kRounding * of_m * std::max(of_l, of_r);
    };
    std::vector<float> made(part.left_count());
    multiply(part, elements.data(), right.data(), made.data());
    const Matrix lefts = product(m, transposed(r));
    for (std::size_t i = 0; i < made.size(); ++i) {
      ASSERT_NEAR(made[i], lefts[i / part.rank][i % part.rank], bound(part.columns));
    }
    made.resize(part.right_count());
    multiply_transposed(part, elements.data(), left.data(), made.data());
    const Matrix rights = product(transposed(l), m);
    for (std::size_t i = 0; i < made.size(); ++i) {
      ASSERT_NEAR(made[i], rights[i / part.columns][i % part.columns], bound(part.rows()));
    }
    made.resize(part.count);
    std::ranges::fill(made, 0.0f);
    add_product(part, 1.0f, left.data(), right.data(), made.data());
    const std::vector<double> products = elements_of(part, product(l, r));
    const std::vector<float> before = elements;
    add_product(part, -1.0f, left.data(), right.data(), elements.data());
    const double error = 2 * static_cast<double>(part.rank + 2) * kRounding * of_l * of_r;
    for (std::size_t i = 0; i < made.size(); ++i) {
      ASSERT_NEAR(made[i], products[i], error);
      ASSERT_NEAR(elements[i], double{before[i]} - products[i], error + kRounding * of_m);
    }
  }
}

TEST(LowRankTest, ColumnsBecomeOrthonormalAndDependentOnesZero) {
  std::mt19937 random(kSeed);
  const MatrixPart part{.count = 50 * 40, .columns = 40, .rank = 4};
  std::vector<float> left = numbers(random, part.left_count());
  for (std::size_t i = 0; i < left.size(); i += 4) {
    left[i + 1] *= 1e-20f;
    left[i + 2] = 3 * left[i] - 1e20f * left[i + 1];
  }
  orthonormalise(part, left);
  const Matrix columns = transposed(rows_of(left, 4));
  for (std::size_t a = 0; a < 4; ++a) {
    for (std::size_t b = 0; b < 4; ++b) {
      double dot = 0;
      for (std::size_t i = 0; i < 50; ++i) dot += columns[a][i] * columns[b][i];
      EXPECT_NEAR(dot, a == b && a != 2 ? 1.0 : 0.0, 1e-6) << a << ", " << b;
    }
  }
  EXPECT_EQ(std::ranges::count(columns[2], 0.0), 50);
  std::vector<float> nothing(part.left_count());
  orthonormalise(part, nothing);
  EXPECT_EQ(nothing, std::vector<float>(part.left_count()));
}

}  // namespace
}  // namespace kolo::test
