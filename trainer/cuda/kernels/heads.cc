#include "trainer/cuda/kernels/heads.h"

#include "trainer/cuda/kernels/reference-inl.h"

namespace kolo::trainer::cuda::reference {

void split_heads(DType dtype, const HeadShape& shape, const void* joined, void* split) {
  visit_element(dtype, [&](auto element) {
    using T = decltype(element);
    for (std::size_t i = 0; i < shape.count(); ++i) {
      as<T>(split)[i] = as<T>(joined)[shape.joined_index(i)];
    }
  });
}

void join_heads(DType dtype, const HeadShape& shape, const void* split, void* joined) {
  visit_element(dtype, [&](auto element) {
    using T = decltype(element);
    for (std::size_t i = 0; i < shape.count(); ++i) {
      as<T>(joined)[shape.joined_index(i)] = as<T>(split)[i];
    }
  });
}

}  // namespace kolo::trainer::cuda::reference
