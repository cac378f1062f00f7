#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "compression/kernels/low_rank.h"
#include "tests/compression/sparse_numbers.h"

/// Matrices in plain float64 arithmetic, for tests of factors.
namespace kolo::test {

inline constexpr double kRounding = 0x1p-24;  // relative error of one float32 operation

using Matrix = std::vector<std::vector<double>>;

inline Matrix zero_matrix(std::size_t rows, std::size_t columns) {
  return Matrix(rows, std::vector<double>(columns));
}

/// Returns the product a · b.
inline Matrix product(const Matrix& a, const Matrix& b) {
  Matrix result = zero_matrix(a.size(), b.front().size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t k = 0; k < b.size(); ++k) {
      for (std::size_t j = 0; j < b[k].size(); ++j) result[i][j] += a[i][k] * b[k][j];
    }
  }
  return result;
}

inline Matrix transposed(const Matrix& a) {
  Matrix result = zero_matrix(a.front().size(), a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < a[i].size(); ++j) result[j][i] = a[i][j];
  }
  return result;
}

inline double norm(const Matrix& a) {
  double squares = 0;
  for (const auto& row : a) {
    for (const double value : row) squares += value * value;
  }
  return std::sqrt(squares);
}

/// Returns the matrix of a part, with zeros for missing elements.
inline Matrix matrix_of(const MatrixPart& part, std::span<const float> elements) {
  Matrix result = zero_matrix(part.rows(), part.columns);
  for (std::size_t i = 0; i < part.count; ++i) {
    result[(part.head + i) / part.columns][(part.head + i) % part.columns] = double{elements[i]};
  }
  return result;
}

/// Returns the elements of a part from its whole matrix.
inline std::vector<double> elements_of(const MatrixPart& part, const Matrix& matrix) {
  std::vector<double> result;
  for (std::size_t i = 0; i < part.count; ++i) {
    result.push_back(matrix[(part.head + i) / part.columns][(part.head + i) % part.columns]);
  }
  return result;
}

inline Matrix rows_of(std::span<const float> values, std::size_t columns) {
  return matrix_of({.count = values.size(), .columns = columns}, values);
}

/// Makes the columns orthonormal. Returns also the smallest share of a column's norm that is left
/// after the columns before it.
inline std::pair<Matrix, double> orthonormal(const Matrix& left) {
  Matrix columns = transposed(left);
  double least = 1;
  for (std::size_t k = 0; k < columns.size(); ++k) {
    std::vector<double> rest = columns[k];
    double before = 0, after = 0;
    for (const double value : rest) before += value * value;
    for (int round = 0; round < 3; ++round) {
      for (std::size_t j = 0; j < k; ++j) {
        double share = 0;
        for (std::size_t i = 0; i < rest.size(); ++i) share += columns[j][i] * rest[i];
        for (std::size_t i = 0; i < rest.size(); ++i) rest[i] -= share * columns[j][i];
      }
    }
    for (const double value : rest) after += value * value;
    least = std::min(least, std::sqrt(after / before));
    for (double& value : rest) value /= std::sqrt(after);
    columns[k] = rest;
  }
  return {transposed(columns), least};
}

/// Draws numbers of the normal distribution.
inline std::vector<float> numbers(std::mt19937& random, std::size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

}  // namespace kolo::test
