#pragma once

#include <cstddef>
#include <memory>

#include "trainer/layers/layer.h"

namespace kolo::trainer {

class Device;

/// The largest value of each window, 2 × 2 without overlap unless told otherwise; rows and columns
/// at the end that fill no window are dropped.
///
/// Shape: input [images, height, width, channels], output [images, output_height, output_width,
///        channels].
class MaxPool final : public Layer {
 public:
  struct Options {
    std::size_t images;
    std::size_t height;
    std::size_t width;
    std::size_t channels;
    std::size_t window = 2;   ///< Rows and columns.
    std::size_t stride = 2;   ///< From one window to the next; at least 1.
    std::size_t padding = 0;  ///< Rows and columns on each side, which no window takes; < window.

    std::size_t output_height() const { return (height + 2 * padding - window) / stride + 1; }
    std::size_t output_width() const { return (width + 2 * padding - window) / stride + 1; }
  };

  /// Errors: UsageError for images smaller than the window. `device` outlives the layer.
  MaxPool(Device& device, const Options& options);
  ~MaxPool() override;

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override;
  std::span<const float> backward(std::span<const float> output_gradient) override;

 private:
  struct Primitives;
  std::unique_ptr<Primitives> primitives_;
};

}  // namespace kolo::trainer
