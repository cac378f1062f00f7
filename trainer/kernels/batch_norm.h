#pragma once

#include <cstddef>
#include <span>

namespace kolo::trainer {

/// sums[j] += sum over rows i of (x[i, j] - pivot[j]), squares[j] += the same of its square: in
/// fp32 within blocks of rows, fp64 between them, so that a pivot near the mean loses no digits.
///
/// Shape: x is [rows, pivot.size()], sums and squares have pivot.size() elements.
void add_column_moments(std::span<const float> x, std::span<const float> pivot,
                        std::span<double> sums, std::span<double> squares);

/// y[i, j] = x[i, j] · scale[j] + shift[j]. Shape: x and y are [rows, scale.size()].
void scale_and_shift_columns(std::span<const float> x, std::span<const float> scale,
                             std::span<const float> shift, std::span<float> y);

/// With n[i, j] = (x[i, j] - mean[j]) · rstd[j]: sums[j] += sum over i of dy[i, j], and slopes[j]
/// += the same of dy[i, j] · n[i, j]. Sums and shapes are as in `add_column_moments`.
void add_normalized_slopes(std::span<const float> dy, std::span<const float> x,
                           std::span<const float> mean, std::span<const float> rstd,
                           std::span<double> sums, std::span<double> slopes);

/// dx[i, j] = a[j] · dy[i, j] + b[j] · x[i, j] + c[j]. Shape: dy, x and dx are [rows, a.size()].
void combine_columns(std::span<const float> dy, std::span<const float> x, std::span<const float> a,
                     std::span<const float> b, std::span<const float> c, std::span<float> dx);

}  // namespace kolo::trainer
