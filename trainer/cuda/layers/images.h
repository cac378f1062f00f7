#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "trainer/cuda/compute/context.h"
#include "trainer/cuda/kernels/softmax.h"
#include "trainer/cuda/parameters.h"
#include "trainer/models/image_network.h"

namespace kolo::trainer::cuda {

/// Facts about a pass of an image model, for its layers.
struct ImagePass {
  const BatchHeader* header;  ///< In device memory.
  bool is_training;
};

/// A layer of an image model on a device; trainer/models/image_network.h describes it.
///
/// Shape:  x and y, and their gradients, are shaped as on the processor and of the context's dtype.
///         A convolution's input has channels of zeros up to a multiple of kChannelMultiple.
/// Memory: results belong to the layer. x must not change until `backward` returns.
class DeviceLayer {
 public:
  virtual ~DeviceLayer() = default;

  virtual const void* forward(const void* x, const ImagePass& pass) = 0;
  /// Computes the gradients of the layer's parameters and reports them ready. Returns the gradient
  /// of x, or null if the options say that it is not needed.
  virtual const void* backward(const void* dy) = 0;
};

/// The objects that layers use. They outlive the layers.
struct LayerContext {
  Context& context;
  DeviceParameters& parameters;
  DeviceParameters& buffers;  ///< The buffers of the model, by name.
};

/// Layers in sequence: each takes the output of the one before it.
class DeviceLayers final : public DeviceLayer {
 public:
  /// Makes `layers`; each finds its parameters and buffers by name. With `has_logits`, the output
  /// of the last one, a dense layer, is float32.
  /// Errors: UsageError for a convolution whose output channels are no multiple of
  /// kChannelMultiple.
  DeviceLayers(const LayerContext& with, std::span<const ImageLayer> layers, bool has_logits);

  const void* forward(const void* x, const ImagePass& pass) override {
    for (const auto& layer : layers_) x = layer->forward(x, pass);
    return x;
  }
  const void* backward(const void* dy) override {
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
      dy = (*layer)->backward(dy);
    }
    return dy;
  }

 private:
  std::vector<std::unique_ptr<DeviceLayer>> layers_;
};

}  // namespace kolo::trainer::cuda
