#include "trainer/compute/device.h"

#include "comm/base/check.h"
#include "comm/base/half.h"
#include "trainer/kernels/kernels.h"

// oneDNN uses the OpenMP run-time library libgomp. Its function is declared here, because <omp.h>
// belongs to the compiler, and Clang's <omp.h> describes another library.
extern "C" void omp_set_num_threads(int threads);

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
    // The bias is stored first, and the product is added to it; this saves a pass over the result.
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

Factor::Factor(Device& device, std::size_t elements) : device_(device) {
  if (device.precision() == DType::kFloat32) return;
  copy_ = allocate_aligned(elements * size_of(device.operand_dtype()));
  data_ = copy_.get();
}

void Factor::assign(std::span<const float> values) {
  switch (device_.precision()) {
    case DType::kBFloat16:
      device_.products().round(values, reinterpret_cast<std::uint16_t*>(copy_.get()));
      break;
    case DType::kFloat16: {
      auto* const rounded = reinterpret_cast<float*>(copy_.get());
      for (std::size_t i = 0; i < values.size(); ++i) rounded[i] = to_float(to_float16(values[i]));
      break;
    }
    default:
      data_ = reinterpret_cast<const std::byte*>(values.data());
  }
}

Operand Factor::operand(std::size_t offset, std::size_t rows, std::size_t columns,
                        std::size_t stride) const {
  const DType dtype = device_.operand_dtype();
  return {.data = data_ + offset * size_of(dtype),
          .rows = rows,
          .columns = columns,
          .stride = stride,
          .dtype = dtype};
}

bool can_compute(DType precision) {
  if (precision != DType::kBFloat16) return true;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const auto layout = [](dnnl::memory::data_type type) {
    return dnnl::memory::desc({16, 16}, type, dnnl::memory::format_tag::ab);
  };
  const auto operand = layout(dnnl::memory::data_type::bf16);
  const dnnl::matmul::desc product(operand, operand, layout(dnnl::memory::data_type::f32));
  constexpr bool kMayBeEmpty = true;  // returns an empty result if there is no such primitive
  return dnnl::matmul::primitive_desc(product, engine, kMayBeEmpty).get(kMayBeEmpty) != nullptr;
}

void set_compute_threads(int threads) { omp_set_num_threads(threads); }

}  // namespace kolo::trainer
