#include "trainer/tensor.h"

#include <sys/mman.h>

#include <algorithm>
#include <functional>
#include <new>
#include <numeric>
#include <utility>

#include "comm/base/check.h"

namespace kolo::trainer {
namespace {

/// Smallest tensor that is mapped, so that it is zero and takes no memory until it is used.
constexpr std::size_t kMappedBytes = std::size_t{1} << 20;

}  // namespace

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

void Tensor::Free::operator()(float* data) const noexcept {
  bytes_of_thread_ -= bytes;
  if (bytes >= kMappedBytes) {
    ::munmap(data, bytes);
  } else {
    ::operator delete (data, std::align_val_t{kAlignment});
  }
}

Tensor::Tensor(Shape shape) : shape_(std::move(shape)), size_(element_count(shape_)) {
  const std::size_t bytes = size_ * sizeof(float);
  void* const data = bytes >= kMappedBytes ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                           : ::operator new (bytes, std::align_val_t{kAlignment});
  if (data == MAP_FAILED) throw std::bad_alloc();
  data_ = {static_cast<float*>(data), Free{bytes}};
  bytes_of_thread_ += bytes;
  if (bytes < kMappedBytes) fill(0.0f);
}

void Tensor::fill(float value) { std::fill_n(data(), size_, value); }

void Tensor::assign(std::span<const float> values) {
  check(values.size() == size_, "a tensor takes exactly as many values as it has elements");
  std::copy(values.begin(), values.end(), data());
}

}  // namespace kolo::trainer
