#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace kolo::trainer {

/// The circumstances of a forward pass.
struct Pass {
  bool is_training = true;  ///< Statistics are collected, and what drops out at random does.
  /// Real samples at the beginning of the batch; the others are padding.
  std::size_t samples = SIZE_MAX;
  /// The first sample's place in training: random numbers that follow it are the same whatever the
  /// number of ranks.
  std::uint64_t epoch = 0;
  std::uint64_t first_position = 0;
  /// Positions of each sequence that earlier passes have computed, for layers that keep them: see
  /// SelfAttention::Options::chunk.
  std::size_t past = 0;
};

/// One step of a model for a batch whose shape is fixed at construction. The layers of a
/// transformer take fewer rows, too, in a pass that no `backward` follows.
///
/// Buffers:  what `forward` and `backward` return belongs to the layer and is valid until its next
///           call; the input of `forward` must stay valid until `backward` returns.
/// Before:   `backward` follows a `forward` that is training. It contributes to the gradients of
///           the layer's parameters, whose memory is bound, as `Parameter::next_contribution` says,
///           then calls `contributed` of each.
/// Threads:  one.
class Layer {
 public:
  virtual ~Layer() = default;

  virtual std::span<const float> forward(std::span<const float> input, const Pass& pass) = 0;

  /// Computes the gradient of the input from that of the output.
  virtual std::span<const float> backward(std::span<const float> output_gradient) = 0;
};

/// Layers in succession: each takes the output of the one before it.
class Sequential : public Layer {
 public:
  /// Makes a layer in place and appends it.
  template <typename L, typename... Args>
  L& append(Args&&... args) {
    auto layer = std::make_unique<L>(std::forward<Args>(args)...);
    L& appended = *layer;
    layers_.push_back(std::move(layer));
    return appended;
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

/// Replaces `values` by their sums over all ranks, for layers whose statistics are those of the
/// samples of all ranks. Collective: every rank calls it equally often, in the same order; `name`
/// says what is summed and is one layer's own.
using RankSums = std::function<void(std::string_view name, std::span<double> values)>;

}  // namespace kolo::trainer
