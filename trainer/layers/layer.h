#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/part.h"

namespace kolo::trainer {

/// The settings of a forward pass.
struct Pass {
  bool is_training = true;  ///< Whether layers collect statistics and apply dropout.
  /// Number of samples at the beginning of the batch; the rows after them are padding.
  std::size_t samples = SIZE_MAX;
  /// Epoch, and position of the first sample in the epoch's order. Random numbers are derived from
  /// these, so they do not depend on the number of ranks.
  std::uint64_t epoch = 0;
  std::uint64_t first_position = 0;
  /// Number of positions of each sequence that earlier passes have computed; see
  /// SelfAttention::Options::chunk.
  std::size_t past = 0;
};

/// One operation of a model, for batches whose shape is fixed at construction. Layers of a
/// transformer accept fewer rows if no `backward` follows.
///
/// Buffers:  the results of `forward` and `backward` belong to the layer and stay valid until its
///           next call; the input of `forward` must stay valid until `backward` returns.
/// Before:   `backward` follows a `forward` in training, and the gradients of the layer's
///           parameters are bound. `backward` writes its contribution to each of them
///           (`Parameter::next_contribution`), then calls `Parameter::contributed`.
/// Threads:  one.
class Layer {
 public:
  virtual ~Layer() = default;

  virtual std::span<const float> forward(std::span<const float> input, const Pass& pass) = 0;

  /// Returns the gradient of the input, computed from the gradient of the output.
  virtual std::span<const float> backward(std::span<const float> output_gradient) = 0;
};

/// A sequence of layers; the input of each layer is the output of the layer before.
class Sequential : public Layer {
 public:
  /// Constructs a layer and appends it.
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

/// Replaces `values` by their sums over all ranks. Layers call it for statistics over the samples
/// of all ranks. `name` identifies the values and is unique to one layer. Collective: all ranks
/// make the same calls in the same order.
using RankSums = std::function<void(std::string_view name, std::span<double> values)>;

/// The exchanges of the ranks that divide the layers of a model among them. Each rank has some rows
/// or columns of the weights. Collective: these ranks make the same calls, in the same order.
struct TensorRanks {
  std::size_t index = 0;  ///< Index of this rank, below `ways`.
  std::size_t ways = 1;   ///< Number of ranks; 1 if layers are whole and nothing is exchanged.
  /// Replaces `values` by their sums over these ranks, with equal bits on all ranks.
  std::function<void(std::string_view name, std::span<float> values)> sum = {};

  /// Whether layers are divided.
  bool deal() const { return ways > 1; }
  /// This rank's part of a weight that is divided by outputs, in each of `sections` sections.
  Part outputs(std::size_t sections = 1) const {
    return {.index = index, .ways = ways, .axis = 0, .sections = sections};
  }
  /// This rank's part of a weight that is divided by inputs.
  Part inputs() const { return {.index = index, .ways = ways, .axis = 1}; }
};

/// A stage of a pipeline: it has a range of the blocks of a model.
struct Stage {
  std::size_t index = 0;
  std::size_t count = 1;

  bool is_first() const { return index == 0; }
  bool is_last() const { return index + 1 == count; }
  /// Whether the stage has block `block` of a model with `blocks` blocks.
  bool has(std::size_t block, std::size_t blocks) const {
    return block >= index * blocks / count && block < (index + 1) * blocks / count;
  }
};

}  // namespace kolo::trainer
