#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <unordered_map>

#include <oneapi/dnnl/dnnl.hpp>

#include "comm/base/aligned_memory.h"
#include "comm/base/dtype.h"
#include "trainer/parameter_set.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// A view of a row-major matrix. `stride` is the distance between rows in elements.
struct Matrix {
  void* data;
  std::size_t rows;
  std::size_t columns;
  std::size_t stride;
  DType dtype = DType::kFloat32;  ///< kFloat32, or kBFloat16 if both operands are bfloat16.
};

/// A read-only operand of a matrix product, of shape [rows, columns]. If `is_transposed`, the
/// memory holds its transpose: element (i, j) has index j * stride + i, otherwise i * stride + j.
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

/// Computes matrix products with oneDNN, and rounds their operands. Products accumulate in float32;
/// results are float32, or rounded once to bfloat16.
///
/// float32 products use oneDNN's sgemm, which is as fast at these sizes as a primitive. For
/// bfloat16, the first use of each combination of shapes creates a primitive, which is cached.
/// Operands stay row-major, because conversion to a layout of oneDNN's choice costs more than it
/// saves.
///
/// Threads: one.
class Products {
 public:
  /// Both arguments outlive this object.
  Products(const dnnl::engine& engine, dnnl::stream& stream) : engine_(engine), stream_(stream) {}
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// Computes c = a · b, or c += a · b if `into` is kAdd.
  ///
  /// Shape:  a is [m, k], b is [k, n], c is [m, n]. Both operands have the same dtype.
  /// Errors: UsageError if shapes or dtypes do not fit, or if a bfloat16 result is to be added to.
  void multiply(const Operand& a, const Operand& b, const Matrix& c, Into into = Into::kOverwrite);

  /// Computes c = a · b and adds `bias`, [n], to each row. Before: the rows of c are adjacent.
  void multiply(const Operand& a, const Operand& b, std::span<const float> bias, const Matrix& c);

  /// Writes `values`, rounded to the nearest bfloat16, to `out`.
  void round(std::span<const float> values, std::uint16_t* out);

 private:
  /// The key of a cached primitive.
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
  std::map<std::size_t, Kept> roundings_;  // by number of elements
};

/// oneDNN's engine and stream for the processor, and the dtype of matrix products. Matrix products
/// are cached here; a layer that uses another primitive creates that primitive once per shape.
///
/// Threads: one. Two devices in one process are independent.
class Device {
 public:
  /// Before: `precision` is a result of `parse_precision`, and `can_compute(precision)` is true.
  explicit Device(DType precision = DType::kFloat32)
      : engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_),
        products_(engine_, stream_),
        precision_(precision) {}

  const dnnl::engine& engine() const { return engine_; }
  dnnl::stream& stream() { return stream_; }
  Products& products() { return products_; }
  /// Dtype of the operands of products; see Note [Mixed precision] in trainer/precision.
  DType precision() const { return precision_; }
  /// Dtype in which operands are stored; operands rounded to float16 are stored as float32.
  DType operand_dtype() const {
    return precision_ == DType::kBFloat16 ? DType::kBFloat16 : DType::kFloat32;
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  Products products_;
  DType precision_;
};

/// A tensor as an operand of products, in the precision of the device. float32 values stay in
/// place; for bfloat16 and float16 it holds a rounded copy. As on a device that computes in
/// float16, values beyond 65504 become infinite, and very small values become 0.
///
/// Threads: one.
class Factor {
 public:
  /// An operand of up to `elements` values. `device` outlives it.
  Factor(Device& device, std::size_t elements);

  /// Sets the values. Before: they stay valid and unchanged while operands are in use.
  void assign(std::span<const float> values);

  /// The values as an array of `Device::operand_dtype`.
  const void* data() const { return data_; }
  /// The first rows × columns values as a dense matrix.
  Operand operand(std::size_t rows, std::size_t columns) const {
    return operand(0, rows, columns, columns);
  }
  /// A matrix whose first value is element `offset` and whose rows are `stride` elements apart.
  Operand operand(std::size_t offset, std::size_t rows, std::size_t columns,
                  std::size_t stride) const;

 private:
  Device& device_;
  AlignedMemory copy_;  // null for float32
  const std::byte* data_ = nullptr;
};

/// A weight as an operand of products. It updates its `Factor` when the parameter has changed.
///
/// Threads: one.
class WeightFactor {
 public:
  /// Both arguments outlive this object.
  WeightFactor(Device& device, const Parameter& weight)
      : weight_(weight), factor_(device, weight.size()) {}

  /// Reads the weight if it has changed. Call before the first product of each forward pass.
  void refresh() {
    if (version_ == weight_.version()) return;
    factor_.assign(weight_.value());
    version_ = weight_.version();
  }

  /// The weight, [outputs, inputs], as of the last `refresh`.
  Operand operand() const { return factor_.operand(weight_.shape()[0], weight_.shape()[1]); }

 private:
  const Parameter& weight_;
  Factor factor_;
  std::uint64_t version_ = 0;  // version of the values in factor_
};

/// Whether this machine can compute products of operands of dtype `precision`. It can for float32
/// and for float16, which is emulated; for bfloat16, oneDNN must support it. Bfloat16 is fast with
/// AVX-512 BF16 or AMX, and emulated on other processors with AVX-512.
bool can_compute(DType precision);

/// Sets the number of OpenMP threads that oneDNN uses in later calls from this thread. Use 1 if
/// several ranks share a machine.
void set_compute_threads(int threads);

/// The oneDNN data type of an operand. Before: `operand` is kFloat32 or kBFloat16.
inline dnnl::memory::data_type type_of(DType operand) {
  return operand == DType::kBFloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

/// A oneDNN memory layout. `dims` are in the order N, C, H, W; `tag` is their order in memory.
inline dnnl::memory::desc layout_of(std::initializer_list<std::size_t> dims,
                                    dnnl::memory::format_tag tag,
                                    dnnl::memory::data_type type = dnnl::memory::data_type::f32) {
  dnnl::memory::dims signed_dims;
  for (const std::size_t dim : dims) signed_dims.push_back(static_cast<dnnl::memory::dim>(dim));
  return {signed_dims, type, tag};
}

/// A oneDNN memory object of this layout without an address; `at` sets the address.
inline dnnl::memory unbound(const dnnl::memory::desc& layout, const dnnl::engine& engine) {
  return {layout, engine, nullptr};
}

/// Points `memory` at `data` and returns it. oneDNN takes a pointer to mutable data; if the
/// primitive writes to `memory`, `data` must be writable.
inline dnnl::memory& at(dnnl::memory& memory, const void* data) {
  memory.set_data_handle(const_cast<void*>(data));
  return memory;
}

}  // namespace kolo::trainer
