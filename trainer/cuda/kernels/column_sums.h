#pragma once

#include <algorithm>
#include <cstddef>

#include "comm/base/dtype.h"
#include "comm/base/native_stream.h"
#include "trainer/cuda/kernels/portable.h"
#include "trainer/tensor.h"

namespace kolo::trainer::cuda {

/// Sums partial sums: into[c] = sum over parts p of partials[p · stride + c] for c < width; with
/// kAdd, the sum is added to into[c]. This is the second pass of sums whose first pass writes a
/// partial sum per block. The order of additions depends only on `parts`.
struct Fold {
  const float* partials;
  std::size_t parts;
  std::size_t stride;
  std::size_t width;
  Into mode;
  float* into;
};

void fold(NativeStream stream, const Fold& fold);

/// Sums columns: into[c] = sum over rows r of matrix[r, c], in float32 and in an order that depends
/// only on the shape; with kAdd, the sum is added to into[c]. Two launches.
///
/// Shape: matrix is [rows, width] of `dtype`, aligned to 16 bytes; partials
///        [column_sum_parts(rows), width]; into [width].
struct ColumnSums {
  const void* matrix;
  DType dtype;
  std::size_t rows;
  std::size_t width;
  float* partials;
  Into mode = Into::kOverwrite;
  float* into;
};

/// The number of slices of rows that are summed in parallel.
inline std::size_t column_sum_parts(std::size_t rows) {
  constexpr std::size_t kRowsPerPart = 64;
  constexpr std::size_t kMostParts = 128;
  return std::clamp<std::size_t>(ceil_div(rows, kRowsPerPart), 1, kMostParts);
}

void sum_columns(NativeStream stream, const ColumnSums& sums);

}  // namespace kolo::trainer::cuda
