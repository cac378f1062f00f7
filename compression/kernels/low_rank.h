#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace kolo {

/// `count` consecutive elements of a tensor as a matrix, row by row. The first row lacks its first
/// `head` elements, and the last row may be incomplete; missing elements count as zero. The matrix
/// is approximated by left · right:
///
///     head 2      . . 0 1          left    [rows][rank], row by row
///     columns 4   2 3 4 5          right   [rank][columns], row by row
///     count 7     6 . . .
struct MatrixPart {
  std::size_t count = 0;
  std::size_t columns = 1;
  std::size_t head = 0;
  std::size_t rank = 1;  ///< Columns of the left factor, which is at most `rows` and `columns`.

  std::size_t rows() const { return (head + count + columns - 1) / columns; }
  std::size_t left_count() const { return rows() * rank; }
  std::size_t right_count() const { return columns * rank; }
};

/// Returns elements [first, first + count) of a tensor with rows of `columns` elements, and factors
/// of at most `rank` columns. If such factors would not be smaller than the part, it becomes one
/// column, of which no factor loses anything.
MatrixPart matrix_part(std::size_t first, std::size_t count, std::size_t columns, std::size_t rank);

/// The products of a power iteration. Every product and every sum is rounded to float32, in the
/// same order on all machines.
///
/// Threads: pure; any.
/// Cost:    2 * rank operations per element, and one pass over the matrix.

/// left = matrix · rightᵀ
void multiply(const MatrixPart& part, const float* matrix, const float* right, float* left);
/// right = leftᵀ · matrix
void multiply_transposed(const MatrixPart& part, const float* matrix, const float* left,
                         float* right);
/// matrix += sign * left · right
void add_product(const MatrixPart& part, float sign, const float* left, const float* right,
                 float* matrix);

/// Makes the columns of the left factor orthogonal, and their norms one. A column that depends on
/// the columns before it becomes zero. Before: all numbers are finite.
void orthonormalise(const MatrixPart& part, std::span<float> left);

}  // namespace kolo
