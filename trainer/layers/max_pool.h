#pragma once

#include <cstddef>
#include <memory>

#include "trainer/layers/layer.h"

namespace kolo::trainer {

class Device;

/// The largest value of each 2 × 2 window; a last odd row or column is dropped.
///
/// Shape: input [images, height, width, channels], output [images, height / 2, width / 2,
///        channels].
class MaxPool final : public Layer {
 public:
  struct Options {
    std::size_t images;
    std::size_t height;
    std::size_t width;
    std::size_t channels;
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
