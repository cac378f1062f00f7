#pragma once

#include <cstddef>
#include <span>

#include "trainer/compute/into.h"

namespace kolo::trainer {

/// out = a + b. Before: equal sizes; `out` may be one of them.
void add(std::span<const float> a, std::span<const float> b, std::span<float> out);

/// out = a · b, element by element. Before: equal sizes; `out` may be one of them.
void multiply_elements(std::span<const float> a, std::span<const float> b, std::span<float> out);

/// out += factor · values. Before: equal sizes.
void add_scaled(std::span<const float> values, float factor, std::span<float> out);

/// values *= factor.
void scale(std::span<float> values, float factor);

/// Copies `row` into each of the rows of `matrix`, whose width is row.size().
void repeat_row(std::span<const float> row, std::span<float> matrix);

/// sums[j] = sum over rows i of matrix[i, j], in row order, or sums[j] += it.
/// Shape: matrix is [rows, sums.size()].
void sum_rows(std::span<const float> matrix, std::span<float> sums, Into into = Into::kOverwrite);

/// Sum of the squares, in a fixed order, fp32 within blocks and fp64 between them.
double sum_of_squares(std::span<const float> values);

}  // namespace kolo::trainer
