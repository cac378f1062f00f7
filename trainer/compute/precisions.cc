#include "trainer/compute/precisions.h"

#include <oneapi/dnnl/dnnl.hpp>

namespace kolo::trainer {

bool can_compute(DType precision) {
  if (precision != DType::kBFloat16) return true;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const auto layout = [](dnnl::memory::data_type type) {
    return dnnl::memory::desc({16, 16}, type, dnnl::memory::format_tag::ab);
  };
  const auto operand = layout(dnnl::memory::data_type::bf16);
  const dnnl::matmul::desc product(operand, operand, layout(dnnl::memory::data_type::f32));
  constexpr bool kMayBeEmpty = true;  // if there is none
  return dnnl::matmul::primitive_desc(product, engine, kMayBeEmpty).get(kMayBeEmpty) != nullptr;
}

}  // namespace kolo::trainer
