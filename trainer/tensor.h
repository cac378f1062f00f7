#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace kolo::trainer {

/// The size of each dimension, outermost first.
using Shape = std::vector<std::size_t>;

/// The product of the dimensions; 1 for an empty shape.
std::size_t element_count(const Shape& shape);

/// Writes the transpose of a row-major matrix of `rows` rows to `out`. Before: both spans have the
/// same size, a multiple of `rows`.
void transpose(std::span<const float> matrix, std::size_t rows, std::span<float> out);

/// Owns a dense row-major float32 array, initially zero and aligned to a cache line. The system
/// provides the memory of a large tensor when it is used. A tensor cannot be copied implicitly:
/// `assign` copies values, and views are `std::span<float>`.
class Tensor {
 public:
  static constexpr std::size_t kAlignment = 64;

  Tensor() = default;
  explicit Tensor(Shape shape);
  /// Returns the bytes of the tensors that this thread has made, less those that it has destroyed.
  static std::size_t bytes_of_thread() { return bytes_of_thread_; }

  const Shape& shape() const { return shape_; }
  std::size_t size() const { return size_; }
  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  std::span<float> span() { return {data(), size_}; }
  std::span<const float> span() const { return {data(), size_}; }

  void fill(float value);
  /// Copies `values` into the tensor. Errors: UsageError unless `values` has size() elements.
  void assign(std::span<const float> values);

 private:
  struct Free {
    std::size_t bytes;
    void operator()(float* data) const noexcept;
  };
  static constinit thread_local std::size_t bytes_of_thread_;
  Shape shape_;
  std::size_t size_ = 0;
  std::unique_ptr<float, Free> data_;
};

/// Whether a result overwrites its memory or is added to it.
enum class Into { kOverwrite, kAdd };

}  // namespace kolo::trainer
