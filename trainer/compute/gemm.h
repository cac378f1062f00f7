#pragma once

#include <cstddef>

#include "trainer/compute/into.h"

namespace kolo::trainer {

/// A row-major matrix in memory owned by others; `stride` is the distance of rows in elements.
struct Matrix {
  float* data;
  std::size_t rows;
  std::size_t columns;
  std::size_t stride;
};

/// The same for reading. `transposed` swaps the rows and columns of the memory; `rows` and
/// `columns` always describe the operand of the product.
struct Operand {
  const float* data;
  std::size_t rows;
  std::size_t columns;
  std::size_t stride;
  bool is_transposed = false;
};

inline Operand operand(const float* data, std::size_t rows, std::size_t columns) {
  return {data, rows, columns, columns};
}

inline Operand transposed(Operand m) {
  return {m.data, m.columns, m.rows, m.stride, !m.is_transposed};
}

/// c = a · b, or c += a · b.
///
/// Shape:   a is [m, k], b is [k, n], c is [m, n].
/// Threads: any. Errors: UsageError when the shapes do not fit.
/// Source: oneDNN's sgemm; at these sizes as fast as its matmul primitive, and it needs no
///         primitive per shape.
void multiply(Operand a, Operand b, Matrix c, Into into = Into::kOverwrite);

}  // namespace kolo::trainer
