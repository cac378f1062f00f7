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

/// A row-major matrix in memory that it does not own; `stride` is the distance between rows in
/// elements.
struct Matrix {
  void* data;
  std::size_t rows;
  std::size_t columns;
  std::size_t stride;
  DType dtype = DType::kFloat32;  ///< kFloat32, or kBFloat16 where the operands are bfloat16.
};

/// A read-only matrix operand. `is_transposed` swaps the rows and columns of the memory; `rows` and
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

/// Matrix products by oneDNN with float32 accumulation, and rounding of their operands. Results are
/// float32, or rounded once to bfloat16.
///
/// float32 products use oneDNN's sgemm, which is as fast at these sizes as a primitive. For
/// bfloat16, a primitive is created at the first use of each combination of shapes, and cached.
/// Row-major operands are as fast there as layouts of oneDNN's choice, whose conversion costs more
/// than it gains.
///
/// Threads: one.
class Products {
 public:
  /// Both outlive this object.
  Products(const dnnl::engine& engine, dnnl::stream& stream) : engine_(engine), stream_(stream) {}
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// c = a · b, or c += a · b.
  ///
  /// Shape:  a is [m, k], b is [k, n], c is [m, n]; both operands have one dtype.
  /// Errors: UsageError when shapes or dtypes do not fit, also for sums in bfloat16.
  void multiply(const Operand& a, const Operand& b, const Matrix& c, Into into = Into::kOverwrite);

  /// c = a · b + `bias`, [n], added to each row. Before: c is dense.
  void multiply(const Operand& a, const Operand& b, std::span<const float> bias, const Matrix& c);

  /// Rounds values to the nearest bfloat16.
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
  std::map<std::size_t, Kept> roundings_;  // by count
};

/// oneDNN's view of the processor, and the dtype of matrix products on it. Matrix products are
/// cached here; a layer that uses another primitive creates it once per shape.
///
/// Threads: one. Two devices in one process are independent.
class Device {
 public:
  /// Before: `precision` comes from `parse_precision`, and `can_compute(precision)`.
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
  /// Dtype in which operands are stored: float16 is emulated in float32.
  DType operand_dtype() const {
    return precision_ == DType::kBFloat16 ? DType::kBFloat16 : DType::kFloat32;
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  Products products_;
  DType precision_;
};

/// A tensor as operand of products, in the precision of the device: float32 values in place, or a
/// copy rounded to bfloat16, or to float16 in float32 memory. With float16, which is emulated,
/// values beyond 65504 become infinite and small ones vanish, as on a device that supports it.
///
/// Threads: one.
class Factor {
 public:
  /// Holds up to `elements` values. `device` outlives it.
  Factor(Device& device, std::size_t elements);

  /// Before: the values stay valid and unchanged while operands are in use.
  void assign(std::span<const float> values);

  /// All values, of `Device::operand_dtype`.
  const void* data() const { return data_; }
  /// The first rows × columns values as a dense matrix.
  Operand operand(std::size_t rows, std::size_t columns) const {
    return operand(0, rows, columns, columns);
  }
  /// A matrix whose first value is element `offset`; rows are `stride` elements apart.
  Operand operand(std::size_t offset, std::size_t rows, std::size_t columns,
                  std::size_t stride) const;

 private:
  Device& device_;
  AlignedMemory copy_;  // null for float32
  const std::byte* data_ = nullptr;
};

/// A weight as operand of products: a `Factor` that follows the changes of a parameter.
///
/// Threads: one.
class WeightFactor {
 public:
  /// Both outlive this object.
  WeightFactor(Device& device, const Parameter& weight)
      : weight_(weight), factor_(device, weight.size()) {}

  /// Call before the first product of a forward pass.
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
  std::uint64_t version_ = 0;  // of the values in factor_
};

/// Whether products of operands of this dtype can be computed here: float32 and emulated float16
/// everywhere, bfloat16 where oneDNN supports it. It is fast with AVX-512 BF16 or AMX, and emulated
/// with other kinds of AVX-512.
bool can_compute(DType precision);

/// Sets how many OpenMP threads oneDNN uses in later calls from this thread. Use one per rank when
/// ranks share a machine.
void set_compute_threads(int threads);

/// oneDNN's data type of an operand, which is float32 or bfloat16.
inline dnnl::memory::data_type type_of(DType operand) {
  return operand == DType::kBFloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

/// A memory layout for oneDNN. Dimensions are in oneDNN's order (N, C, H, W); the tag gives their
/// order in memory.
inline dnnl::memory::desc layout_of(std::initializer_list<std::size_t> dims,
                                    dnnl::memory::format_tag tag,
                                    dnnl::memory::data_type type = dnnl::memory::data_type::f32) {
  dnnl::memory::dims signed_dims;
  for (const std::size_t dim : dims) signed_dims.push_back(static_cast<dnnl::memory::dim>(dim));
  return {signed_dims, type, tag};
}

/// Memory of this layout without an address; `at` sets it.
inline dnnl::memory unbound(const dnnl::memory::desc& layout, const dnnl::engine& engine) {
  return {layout, engine, nullptr};
}

/// Points `memory` at `data`. Only for data that the primitive reads, or may write.
inline dnnl::memory& at(dnnl::memory& memory, const void* data) {
  memory.set_data_handle(const_cast<void*>(data));
  return memory;
}

}  // namespace kolo::trainer
