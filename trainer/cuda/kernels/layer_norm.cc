#include "trainer/cuda/kernels/layer_norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "comm/base/check.h"
#include "trainer/cuda/kernels/reference-inl.h"

namespace kolo::trainer::cuda {

LayerNormPlan plan_layer_norm(std::size_t rows, std::size_t width) {
  constexpr std::size_t kWarpsOfNarrowRows = 12;  // per block: 4 rows of 768 columns
  constexpr std::size_t kMostRows = 8;
  constexpr std::size_t kMostBlocks = 512;
  const std::size_t warps =
      std::max<std::size_t>(ceil_div<std::size_t>(width, 32 * kLaneColumns), 1);
  check(warps <= kMostNormWarps, "layer norm takes rows of at most 6144 columns");
  const std::size_t at_once = std::clamp<std::size_t>(kWarpsOfNarrowRows / warps, 1, kMostRows);
  const std::size_t blocks = std::clamp<std::size_t>(ceil_div(rows, at_once), 1, kMostBlocks);
  return {.warps = warps, .rows = at_once, .blocks = blocks, .partials = blocks * 2 * width};
}

namespace reference {

void layer_norm(const LayerNormForward& s) {
  visit_element(s.dtype, [&](auto element) {
    using T = decltype(element);
    const auto width = static_cast<double>(s.width);
    for (std::size_t r = 0; r < s.rows; ++r) {
      const T* x = as<T>(s.x) + r * s.width;
      double mean = 0.0;
      for (std::size_t c = 0; c < s.width; ++c) mean += static_cast<double>(widen(x[c])) / width;
      double variance = 0.0;
      for (std::size_t c = 0; c < s.width; ++c) {
        const double centred = static_cast<double>(widen(x[c])) - mean;
        variance += centred * centred / width;
      }
      const double rstd = 1.0 / std::sqrt(variance + 1e-5);
      for (std::size_t c = 0; c < s.width; ++c) {
        const double normal = (static_cast<double>(widen(x[c])) - mean) * rstd;
        const double y = normal * static_cast<double>(s.gain[c]) + static_cast<double>(s.bias[c]);
        as<T>(s.y)[r * s.width + c] = round_to<T>(static_cast<float>(y));
      }
      s.mean[r] = static_cast<float>(mean);
      s.rstd[r] = static_cast<float>(rstd);
    }
  });
}

// With n = (x - mean) rstd and g = dy gain:
//   dx = rstd (g - average(g) - n average(g n)),   dgain = sum(dy n),   dbias = sum(dy).
void layer_norm_backward(const LayerNormBackward& s) {
  visit_element(s.dtype, [&](auto element) {
    using T = decltype(element);
    const auto width = static_cast<double>(s.width);
    std::vector<double> dgain(s.width), dbias(s.width), n(s.width), g(s.width);
    for (std::size_t r = 0; r < s.rows; ++r) {
      const std::size_t row = r * s.width;
      double average = 0.0;
      double along = 0.0;
      for (std::size_t c = 0; c < s.width; ++c) {
        const auto dy = static_cast<double>(widen(as<T>(s.dy)[row + c]));
        n[c] = (static_cast<double>(widen(as<T>(s.x)[row + c])) - static_cast<double>(s.mean[r])) *
               static_cast<double>(s.rstd[r]);
        g[c] = dy * static_cast<double>(s.gain[c]);
        average += g[c] / width;
        along += g[c] * n[c] / width;
        dgain[c] += dy * n[c];
        dbias[c] += dy;
      }
      for (std::size_t c = 0; c < s.width; ++c) {
        double dx = static_cast<double>(s.rstd[r]) * (g[c] - average - n[c] * along);
        if (s.residual != nullptr) dx += static_cast<double>(widen(as<T>(s.residual)[row + c]));
        as<T>(s.dx)[row + c] = round_to<T>(static_cast<float>(dx));
      }
    }
    for (std::size_t c = 0; c < s.width; ++c) {
      s.dgain[c] = static_cast<float>(dgain[c]);
      s.dbias[c] = static_cast<float>(dbias[c]);
    }
  });
}

}  // namespace reference
}  // namespace kolo::trainer::cuda
