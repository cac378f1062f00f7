#include "trainer/cuda/kernels/pixels.h"

#include "trainer/cuda/kernels/reference-inl.h"

namespace kolo::trainer::cuda::reference {

void scale_pixels(const PixelCast& p) {
  visit_element(p.dtype, [&](auto element) {
    using T = decltype(element);
    for (std::size_t i = 0; i < p.count * p.channels; ++i) {
      const bool is_padding = i % p.channels != 0;
      as<T>(p.into)[i] = round_to<T>(is_padding ? 0.0f : p.table[p.bytes[i / p.channels]]);
    }
  });
}

}  // namespace kolo::trainer::cuda::reference
