#include "trainer/compute/products.h"

#include "comm/base/check.h"
#include "trainer/kernels/vector.h"

namespace kolo::trainer {
namespace {

using Layout = dnnl::memory::desc;
using Type = dnnl::memory::data_type;

dnnl::memory::dim dim(std::size_t n) { return static_cast<dnnl::memory::dim>(n); }

Layout matrix_layout(Type type, std::size_t rows, std::size_t columns, std::size_t stride,
                     bool is_transposed) {
  const dnnl::memory::dims strides =
      is_transposed ? dnnl::memory::dims{1, dim(stride)} : dnnl::memory::dims{dim(stride), 1};
  return {{dim(rows), dim(columns)}, type, strides};
}

void multiply_float32(const Operand& a, const Operand& b, const Matrix& c, Into into) {
  const auto flag = [](const Operand& m) { return m.is_transposed ? 'T' : 'N'; };
  const dnnl::status status = dnnl::sgemm(
      flag(a), flag(b), dim(c.rows), dim(c.columns), dim(a.columns), 1.0f,
      static_cast<const float*>(a.data), dim(a.stride), static_cast<const float*>(b.data),
      dim(b.stride), into == Into::kAdd ? 1.0f : 0.0f, static_cast<float*>(c.data), dim(c.stride));
  ensure(status == dnnl::status::success, "sgemm failed");
}

}  // namespace

void Products::multiply(const Operand& a, const Operand& b, const Matrix& c, Into into) {
  multiply(a, b, nullptr, c, into);
}

void Products::multiply(const Operand& a, const Operand& b, std::span<const float> bias,
                        const Matrix& c) {
  check(bias.size() == c.columns && c.stride == c.columns, "a bias fits each row of a product");
  if (a.dtype == DType::kFloat32) {
    // The bias is stored first and the product added to it, which saves a pass over the result.
    repeat_row(bias, {static_cast<float*>(c.data), c.rows * c.columns});
    multiply(a, b, nullptr, c, Into::kAdd);
  } else {
    multiply(a, b, bias.data(), c, Into::kOverwrite);
  }
}

void Products::multiply(const Operand& a, const Operand& b, const float* bias, const Matrix& c,
                        Into into) {
  check(a.columns == b.rows && a.rows == c.rows && b.columns == c.columns && a.dtype == b.dtype,
        "operands of a matrix product do not fit");
  const bool rounds = c.dtype == DType::kBFloat16;
  check(!rounds || (a.dtype == c.dtype && into == Into::kOverwrite),
        "a product is bfloat16 where its operands are, and replaces what is there");
  if (a.dtype == DType::kFloat32) return multiply_float32(a, b, c, into);
  const Shape shape{.rows = c.rows,
                    .depth = a.columns,
                    .columns = c.columns,
                    .a_stride = a.stride,
                    .b_stride = b.stride,
                    .c_stride = c.stride,
                    .transposes_a = a.is_transposed,
                    .transposes_b = b.is_transposed,
                    .adds = into == Into::kAdd,
                    .has_bias = bias != nullptr,
                    .rounds = rounds};
  auto found = products_.find(shape);
  if (found == products_.end()) found = products_.emplace(shape, make_product(shape)).first;
  Kept& product = found->second;
  product.point(DNNL_ARG_SRC, a.data);
  product.point(DNNL_ARG_WEIGHTS, b.data);
  product.point(DNNL_ARG_DST, c.data);
  if (bias != nullptr) product.point(DNNL_ARG_BIAS, bias);
  product.primitive.execute(stream_, product.arguments);
}

void Products::round(std::span<const float> values, std::uint16_t* out) {
  auto found = roundings_.find(values.size());
  if (found == roundings_.end()) {
    found = roundings_.emplace(values.size(), make_rounding(values.size())).first;
  }
  Kept& rounding = found->second;
  rounding.point(DNNL_ARG_FROM, values.data());
  rounding.point(DNNL_ARG_TO, out);
  rounding.primitive.execute(stream_, rounding.arguments);
}

Products::Kept Products::make_product(const Shape& s) const {
  const Layout a = matrix_layout(Type::bf16, s.rows, s.depth, s.a_stride, s.transposes_a);
  const Layout b = matrix_layout(Type::bf16, s.depth, s.columns, s.b_stride, s.transposes_b);
  const Layout c =
      matrix_layout(s.rounds ? Type::bf16 : Type::f32, s.rows, s.columns, s.c_stride, false);
  const Layout bias =
      s.has_bias ? matrix_layout(Type::f32, 1, s.columns, s.columns, false) : Layout();
  dnnl::primitive_attr attributes;
  if (s.adds) {
    dnnl::post_ops sum;
    sum.append_sum();
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::desc description(a, b, bias, c);
  Kept kept{.primitive = dnnl::matmul({description, attributes, engine_}), .arguments = {}};
  kept.arguments.emplace(DNNL_ARG_SRC, dnnl::memory(a, engine_, nullptr));
  kept.arguments.emplace(DNNL_ARG_WEIGHTS, dnnl::memory(b, engine_, nullptr));
  kept.arguments.emplace(DNNL_ARG_DST, dnnl::memory(c, engine_, nullptr));
  if (s.has_bias) kept.arguments.emplace(DNNL_ARG_BIAS, dnnl::memory(bias, engine_, nullptr));
  return kept;
}

Products::Kept Products::make_rounding(std::size_t count) const {
  const Layout from({dim(count)}, Type::f32, dnnl::memory::format_tag::a);
  const Layout to({dim(count)}, Type::bf16, dnnl::memory::format_tag::a);
  const dnnl::memory source(from, engine_, nullptr);
  const dnnl::memory target(to, engine_, nullptr);
  return {.primitive = dnnl::reorder(source, target),
          .arguments = {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, target}}};
}

}  // namespace kolo::trainer
