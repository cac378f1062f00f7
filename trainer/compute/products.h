#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>

#include <oneapi/dnnl/dnnl.hpp>

#include "comm/base/dtype.h"
#include "trainer/compute/into.h"

namespace kolo::trainer {

/// A row-major matrix in memory owned by others; `stride` is the distance of rows in elements.
struct Matrix {
  void* data;
  std::size_t rows;
  std::size_t columns;
  std::size_t stride;
  DType dtype = DType::kFloat32;  ///< kFloat32, or kBFloat16 where the operands are bfloat16.
};

/// The same for reading. `transposed` swaps the rows and columns of the memory; `rows` and
/// `columns` always describe the operand of the product.
struct Operand {
  const void* data;
  std::size_t rows;
  std::size_t columns;
  std::size_t stride;
  DType dtype = DType::kFloat32;  ///< kFloat32 or kBFloat16.
  bool is_transposed = false;
};

inline Operand transposed(Operand m) {
  return {m.data, m.columns, m.rows, m.stride, m.dtype, !m.is_transposed};
}

/// Matrix products by oneDNN with float32 sums, and the rounding of their operands. Results are
/// float32, or rounded once to bfloat16.
///
/// float32 products take its sgemm, which is as fast at these sizes as a primitive. For bfloat16 a
/// primitive is made for each combination of shapes, when it is met first, and kept. Row-major
/// operands are as fast there as layouts of oneDNN's choice, whose conversion costs more than it
/// gains.
///
/// Threads: one.
class Products {
 public:
  /// Both outlive it.
  Products(const dnnl::engine& engine, dnnl::stream& stream) : engine_(engine), stream_(stream) {}
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// c = a · b, or c += a · b.
  ///
  /// Shape:  a is [m, k], b is [k, n], c is [m, n]; both operands have one dtype.
  /// Errors: UsageError when shapes or dtypes do not fit, also for sums in bfloat16.
  void multiply(const Operand& a, const Operand& b, const Matrix& c, Into into = Into::kOverwrite);

  /// c = a · b, plus `bias`, [n], in each row. Before: c is dense.
  void multiply(const Operand& a, const Operand& b, std::span<const float> bias, const Matrix& c);

  /// Rounds to the nearest bfloat16.
  void round(std::span<const float> values, std::uint16_t* out);

 private:
  /// All that a primitive depends on.
  struct Shape {
    std::size_t rows, depth, columns;
    std::size_t a_stride, b_stride, c_stride;
    bool transposes_a, transposes_b, adds, has_bias, rounds;
    auto operator<=>(const Shape&) const = default;
  };
  /// A primitive and its arguments, whose addresses are set before each use.
  struct Kept {
    dnnl::primitive primitive;
    std::unordered_map<int, dnnl::memory> arguments;

    void point(int argument, const void* data) {
      arguments.at(argument).set_data_handle(const_cast<void*>(data));
    }
  };

  void multiply(const Operand& a, const Operand& b, const float* bias, const Matrix& c, Into into);
  Kept make_product(const Shape& shape) const;
  Kept make_rounding(std::size_t count) const;

  const dnnl::engine& engine_;
  dnnl::stream& stream_;
  std::map<Shape, Kept> products_;
  std::map<std::size_t, Kept> roundings_;  // by count
};

}  // namespace kolo::trainer
