#include "trainer/cuda/kernels/filter.h"

#include "trainer/cuda/kernels/reference-inl.h"

namespace kolo::trainer::cuda::reference {

void pack_filter(const FilterShape& shape, const float* parameter, DType dtype, void* packed) {
  visit_element(dtype, [&](auto element) {
    using T = decltype(element);
    for (std::size_t i = 0; i < shape.packed_count(); ++i) {
      const bool is_padding = shape.input_of(i) >= shape.inputs;
      as<T>(packed)[i] = round_to<T>(is_padding ? 0.0f : parameter[shape.parameter_index(i)]);
    }
  });
}

void unpack_filter(const FilterShape& shape, DType dtype, const void* packed, float* parameter) {
  visit_element(dtype, [&](auto element) {
    using T = decltype(element);
    for (std::size_t i = 0; i < shape.packed_count(); ++i) {
      if (shape.input_of(i) >= shape.inputs) continue;
      parameter[shape.parameter_index(i)] = widen(as<T>(packed)[i]);
    }
  });
}

}  // namespace kolo::trainer::cuda::reference
