#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "trainer/layers/layer.h"

namespace kolo::trainer {

/// Layers in succession: each takes the output of the one before it.
class Sequential final : public Layer {
 public:
  /// Makes a layer in place and appends it.
  template <typename L, typename... Args>
  void append(Args&&... args) {
    layers_.push_back(std::make_unique<L>(std::forward<Args>(args)...));
  }

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override {
    for (const auto& layer : layers_) input = layer->forward(input, pass);
    return input;
  }

  std::span<const float> backward(std::span<const float> gradient) override {
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
      gradient = (*layer)->backward(gradient);
    }
    return gradient;
  }

 private:
  std::vector<std::unique_ptr<Layer>> layers_;
};

}  // namespace kolo::trainer
