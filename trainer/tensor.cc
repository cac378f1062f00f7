#include "trainer/tensor.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <new>
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

constinit thread_local std::size_t Tensor::bytes_of_thread_ = 0;

void Tensor::Free::operator()(float*) const noexcept {
  bytes_of_thread_ -= bytes;
  std::free(block);
}

Tensor::Tensor(Shape shape) : shape_(std::move(shape)), size_(element_count(shape_)) {
  const std::size_t bytes = size_ * sizeof(float);
  std::size_t space = bytes + kAlignment;
  void* block = std::calloc(space, 1);
  if (block == nullptr) throw std::bad_alloc();
  void* data = block;
  std::align(kAlignment, bytes, data, space);
  data_ = {static_cast<float*>(data), Free{block, bytes}};
  bytes_of_thread_ += bytes;
}

void Tensor::fill(float value) { std::fill_n(data(), size_, value); }

void Tensor::assign(std::span<const float> values) {
  check(values.size() == size_, "a tensor takes exactly as many values as it has elements");
  std::copy(values.begin(), values.end(), data());
}

}  // namespace kolo::trainer
