#include "trainer/cuda/kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "trainer/cuda/kernels/reference-inl.h"

namespace kolo::trainer::cuda::reference {

void cross_entropy(const CrossEntropy& s) {
  visit_element(s.dtype, [&](auto element) {
    using T = decltype(element);
    T* gradient = as<T>(s.gradient);
    const double weight =
        static_cast<double>(s.header->row_weight) * static_cast<double>(s.header->loss_scale);
    for (std::size_t r = 0; r < s.rows; ++r) {
      const float* logits = s.logits + r * s.classes;
      const bool counts = r < s.header->targets;
      const float* best = std::max_element(logits, logits + s.classes);
      const auto power = [&](std::size_t c) {
        return std::exp(static_cast<double>(logits[c]) - static_cast<double>(*best));
      };
      double sum = 0.0;
      for (std::size_t c = 0; c < s.classes; ++c) sum += power(c);
      for (std::size_t c = 0; gradient != nullptr && c < s.classes; ++c) {
        const double hit = counts && c == s.targets[r] ? 1.0 : 0.0;
        const double value = counts ? weight * (power(c) / sum - hit) : 0.0;
        gradient[r * s.classes + c] = round_to<T>(static_cast<float>(value));
      }
      float* result = s.row_results + 2 * r;
      result[0] = result[1] = 0.0f;
      if (!counts) continue;
      const double shifted = static_cast<double>(logits[s.targets[r]]) - static_cast<double>(*best);
      result[0] = static_cast<float>(std::log(sum) - shifted);
      result[1] = best - logits == s.targets[r] ? 1.0f : 0.0f;
      s.totals->loss += static_cast<double>(result[0]);
      s.totals->correct += static_cast<double>(result[1]);
    }
  });
}

}  // namespace kolo::trainer::cuda::reference
