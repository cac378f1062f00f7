#include "trainer/cuda/kernels/cast.h"

#include "trainer/cuda/kernels/reference-inl.h"

namespace kolo::trainer::cuda::reference {

void cast(const float* from, std::size_t count, DType dtype, void* into) {
  visit_element(dtype, [&](auto element) {
    using T = decltype(element);
    for (std::size_t i = 0; i < count; ++i) as<T>(into)[i] = round_to<T>(from[i]);
  });
}

}  // namespace kolo::trainer::cuda::reference
