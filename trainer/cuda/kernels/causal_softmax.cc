#include "trainer/cuda/kernels/causal_softmax.h"

#include <algorithm>
#include <cmath>

#include "trainer/cuda/kernels/reference-inl.h"

namespace kolo::trainer::cuda::reference {

void causal_softmax(const CausalSoftmax& s) {
  visit_element(s.dtype, [&](auto element) {
    using T = decltype(element);
    for (std::size_t r = 0; r < s.matrices * s.length; ++r) {
      T* row = as<T>(s.scores) + r * s.length;
      const std::size_t used = r % s.length + 1;
      float top = widen(row[0]);
      for (std::size_t c = 1; c < used; ++c) top = std::max(top, widen(row[c]));
      double sum = 0.0;
      const auto power = [&](std::size_t c) {
        return std::exp(static_cast<double>(widen(row[c])) - static_cast<double>(top));
      };
      for (std::size_t c = 0; c < used; ++c) sum += power(c);
      for (std::size_t c = 0; c < s.length; ++c) {
        row[c] = round_to<T>(c < used ? static_cast<float>(power(c) / sum) : 0.0f);
      }
    }
  });
}

void causal_softmax_backward(const CausalSoftmaxBackward& s) {
  visit_element(s.dtype, [&](auto element) {
    using T = decltype(element);
    for (std::size_t r = 0; r < s.matrices * s.length; ++r) {
      const T* w = as<T>(s.weights) + r * s.length;
      T* g = as<T>(s.gradient) + r * s.length;
      const std::size_t used = r % s.length + 1;
      double dot = 0.0;
      for (std::size_t c = 0; c < used; ++c) {
        dot += static_cast<double>(widen(w[c])) * static_cast<double>(widen(g[c]));
      }
      for (std::size_t c = 0; c < s.length; ++c) {
        const double value =
            c < used ? static_cast<double>(widen(w[c])) * (static_cast<double>(widen(g[c])) - dot)
                     : 0.0;
        g[c] = round_to<T>(static_cast<float>(value));
      }
    }
  });
}

}  // namespace kolo::trainer::cuda::reference
