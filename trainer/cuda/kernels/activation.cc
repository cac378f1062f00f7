#include "trainer/cuda/kernels/activation.h"

#include "trainer/cuda/kernels/reference-inl.h"

namespace kolo::trainer::cuda::reference {

void bias_activation(const BiasActivation& step) {
  visit_element(step.dtype, [&](auto element) {
    using T = decltype(element);
    for (std::size_t i = 0; i < step.rows * step.width; ++i) {
      const float bias = step.bias != nullptr ? step.bias[i % step.width] : 0.0f;
      const float v = widen(as<T>(step.x)[i]) + bias;
      if (step.before != nullptr) as<T>(step.before)[i] = round_to<T>(v);
      as<T>(step.y)[i] = round_to<T>(activate(step.activation, v));
    }
  });
}

void activation_backward(Activation activation, DType dtype, const void* before, std::size_t count,
                         void* gradient) {
  visit_element(dtype, [&](auto element) {
    using T = decltype(element);
    for (std::size_t i = 0; i < count; ++i) {
      T& g = as<T>(gradient)[i];
      g = round_to<T>(widen(g) * slope(activation, widen(as<T>(before)[i])));
    }
  });
}

}  // namespace kolo::trainer::cuda::reference
