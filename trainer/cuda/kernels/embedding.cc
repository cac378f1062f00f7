#include "trainer/cuda/kernels/embedding.h"

#include <algorithm>
#include <vector>

#include "trainer/cuda/kernels/portable.h"
#include "trainer/cuda/kernels/reference-inl.h"

namespace kolo::trainer::cuda {

std::size_t token_parts(std::size_t rows) {
  constexpr std::size_t kRowsPerPart = 1024;
  constexpr std::size_t kMostParts = 8;
  return std::clamp<std::size_t>(ceil_div(rows, kRowsPerPart), 1, kMostParts);
}

namespace reference {

void embed(const EmbeddingForward& s) {
  visit_element(s.dtype, [&](auto element) {
    using T = decltype(element);
    for (std::size_t i = 0; i < s.rows * s.width; ++i) {
      const std::size_t row = i / s.width;
      const std::size_t column = i % s.width;
      as<T>(s.y)[i] = round_to<T>(s.token[s.bytes[row] * s.width + column] +
                                  s.position[row % s.length * s.width + column]);
    }
  });
}

void embed_backward(const EmbeddingBackward& s) {
  visit_element(s.dtype, [&](auto element) {
    using T = decltype(element);
    std::vector<double> token(kTokens * s.width), position(s.length * s.width);
    for (std::size_t i = 0; i < s.rows * s.width; ++i) {
      const std::size_t row = i / s.width;
      const std::size_t column = i % s.width;
      const auto dy = static_cast<double>(widen(as<T>(s.dy)[i]));
      token[s.bytes[row] * s.width + column] += dy;
      position[row % s.length * s.width + column] += dy;
    }
    for (std::size_t i = 0; i < token.size(); ++i) {
      s.dtoken[i] = static_cast<float>(static_cast<double>(s.dtoken[i]) + token[i]);
    }
    std::transform(position.begin(), position.end(), s.dposition,
                   [](double sum) { return static_cast<float>(sum); });
  });
}

}  // namespace reference
}  // namespace kolo::trainer::cuda
