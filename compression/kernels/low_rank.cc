#include "compression/kernels/low_rank.h"

#include <cmath>

namespace kolo {
namespace {

/// Calls visit(element, number, right, count) for the pieces of all rows and each column of the
/// left factor: `count` elements from `element`, the `number` in the left factor, and the place in
/// the right factor. Pieces are so short that those of a right factor stay in the cache.
template <typename Visit>
void for_pieces(const MatrixPart& part, const Visit& visit) {
  constexpr std::size_t kColumns = 1024;
  for (std::size_t block = 0; block < part.columns; block += kColumns) {
    const std::size_t block_end = std::min(block + kColumns, part.columns);
    for (std::size_t row = 0; row < part.rows(); ++row) {
      const std::size_t begin = std::max(row * part.columns + block, part.head);
      const std::size_t end = std::min(row * part.columns + block_end, part.head + part.count);
      for (std::size_t k = 0; begin < end && k < part.rank; ++k) {
        const std::size_t right = k * part.columns + begin - row * part.columns;
        visit(begin - part.head, row * part.rank + k, right, end - begin);
      }
    }
  }
}

// Compilers turn both functions into vector code.

float dot(const float* a, const float* b, std::size_t count) {
  constexpr std::size_t kLanes = 16;
  float sums[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  for (std::size_t lane = 0; i + lane < count; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

void add_scaled(float* __restrict sums, float factor, const float* __restrict values,
                std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sums[i] += factor * values[i];
}

}  // namespace

MatrixPart matrix_part(std::size_t first, std::size_t count, std::size_t columns,
                       std::size_t rank) {
  MatrixPart part{.count = count, .columns = columns, .head = first % columns};
  part.rank = std::min({rank, part.rows(), columns});
  return part.left_count() + part.right_count() < count ? part : MatrixPart{.count = count};
}

void multiply(const MatrixPart& part, const float* matrix, const float* right, float* left) {
  std::fill_n(left, part.left_count(), 0.0f);
  for_pieces(part, [&](std::size_t element, std::size_t number, std::size_t at, std::size_t count) {
    left[number] += dot(matrix + element, right + at, count);
  });
}

void multiply_transposed(const MatrixPart& part, const float* matrix, const float* left,
                         float* right) {
  std::fill_n(right, part.right_count(), 0.0f);
  for_pieces(part, [&](std::size_t element, std::size_t number, std::size_t at, std::size_t count) {
    add_scaled(right + at, left[number], matrix + element, count);
  });
}

void add_product(const MatrixPart& part, float sign, const float* left, const float* right,
                 float* matrix) {
  for_pieces(part, [&](std::size_t element, std::size_t number, std::size_t at, std::size_t count) {
    add_scaled(matrix + element, sign * left[number], right + at, count);
  });
}

void orthonormalise(const MatrixPart& part, std::span<float> left) {
  // Below this share of its norm, a column's rest is mostly rounding errors of float32.
  constexpr double kLeastRest = 1e-6;
  const auto dot = [&](std::size_t a, std::size_t b) {
    double sum = 0;
    for (std::size_t i = 0; i < left.size(); i += part.rank) {
      sum += double{left[i + a]} * double{left[i + b]};
    }
    return sum;
  };
  for (std::size_t k = 0; k < part.rank; ++k) {
    const double norm = std::sqrt(dot(k, k));
    for (int round = 0; round < 2; ++round) {  // the second removes the first's rounding errors
      for (std::size_t j = 0; j < k; ++j) {
        const double share = dot(j, k);
        for (std::size_t i = 0; i < left.size(); i += part.rank) {
          left[i + k] = static_cast<float>(left[i + k] - share * double{left[i + j]});
        }
      }
    }
    const double rest = std::sqrt(dot(k, k));
    const double scale = rest > kLeastRest * norm ? 1 / rest : 0.0;
    for (std::size_t i = k; i < left.size(); i += part.rank) {
      left[i] = static_cast<float>(left[i] * scale);
    }
  }
}

}  // namespace kolo
