#include "trainer/cuda/kernels/column_sums.h"

#include <algorithm>

#include "trainer/cuda/kernels/portable.h"
#include "trainer/cuda/kernels/reference-inl.h"

namespace kolo::trainer::cuda {

std::size_t column_sum_parts(std::size_t rows) {
  constexpr std::size_t kRowsPerPart = 64;
  constexpr std::size_t kMostParts = 128;
  return std::clamp<std::size_t>(ceil_div(rows, kRowsPerPart), 1, kMostParts);
}

namespace reference {

void fold(const Fold& f) {
  for (std::size_t c = 0; c < f.width; ++c) {
    double sum = f.mode == FoldInto::kAdd ? static_cast<double>(f.into[c]) : 0.0;
    for (std::size_t p = 0; p < f.parts; ++p) {
      sum += static_cast<double>(f.partials[p * f.stride + c]);
    }
    f.into[c] = static_cast<float>(sum);
  }
}

void sum_columns(const ColumnSums& s) {
  visit_element(s.dtype, [&](auto element) {
    using T = decltype(element);
    for (std::size_t c = 0; c < s.width; ++c) {
      double sum = 0.0;
      for (std::size_t r = 0; r < s.rows; ++r) {
        sum += static_cast<double>(widen(as<T>(s.matrix)[r * s.width + c]));
      }
      s.into[c] = static_cast<float>(sum);
    }
  });
}

}  // namespace reference
}  // namespace kolo::trainer::cuda
