#include "trainer/tensor.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "comm/base/check.h"

namespace kolo::trainer {

std::size_t element_count(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>());
}

void transpose(std::span<const float> matrix, std::size_t rows, std::span<float> out) {
  const std::size_t columns = matrix.size() / rows;
  check(matrix.size() == rows * columns && out.size() == matrix.size(), "a matrix has whole rows");
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      out[column * rows + row] = matrix[row * columns + column];
    }
  }
}

Tensor::Tensor(Shape shape)
    : shape_(std::move(shape)),
      size_(element_count(shape_)),
      data_(static_cast<float*>(
          ::operator new (size_ * sizeof(float), std::align_val_t{kAlignment}))) {
  fill(0.0f);
}

void Tensor::fill(float value) { std::fill_n(data(), size_, value); }

void Tensor::assign(std::span<const float> values) {
  check(values.size() == size_, "a tensor takes exactly as many values as it has elements");
  std::copy(values.begin(), values.end(), data());
}

}  // namespace kolo::trainer
