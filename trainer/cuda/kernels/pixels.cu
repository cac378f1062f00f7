#include "trainer/cuda/kernels/pixels.h"

#include "trainer/cuda/compute/status.h"
#include "trainer/cuda/kernels/element.cuh"
#include "trainer/cuda/kernels/portable.h"

namespace kolo::trainer::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void scale_pixels_kernel(const std::uint8_t* bytes, const float* table,
                                    std::size_t elements, std::size_t channels, T* into) {
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= elements) return;
  const bool is_padding = i % channels != 0;
  into[i] = round_to<T>(is_padding ? 0.0f : table[bytes[i / channels]]);
}

}  // namespace

void scale_pixels(NativeStream stream, const PixelCast& p) {
  const std::size_t elements = p.count * p.channels;
  const auto blocks = static_cast<unsigned>(ceil_div<std::size_t>(elements, kThreads));
  visit_element(p.dtype, [&](auto element) {
    using T = decltype(element);
    scale_pixels_kernel<T><<<blocks, kThreads, 0, native(stream)>>>(p.bytes, p.table, elements,
                                                                    p.channels, as<T>(p.into));
  });
  check_launch("scale_pixels");
}

}  // namespace kolo::trainer::cuda
