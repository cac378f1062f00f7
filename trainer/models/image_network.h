#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "trainer/layers/images.h"
#include "trainer/layers/layer.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/normalization.h"
#include "trainer/parameter_set.h"
#include "trainer/part.h"

namespace kolo::trainer {

class Device;
struct ImageLayer;
using ImageLayers = std::vector<ImageLayer>;

struct ReluOptions {
  std::size_t count;  ///< Number of elements.
};

/// y = main(x) + shortcut(x); a branch without layers returns x.
struct ResidualOptions {
  std::size_t inputs;  ///< Number of elements of x.
  std::size_t outputs;
  ImageLayers main;
  ImageLayers shortcut;
};

/// A layer of an image network as data, from which processor and device make their layers.
struct ImageLayer {
  std::variant<Conv2d::Options, BatchNorm::Options, ReluOptions, MaxPool::Options,
               AveragePool::Options, PaddedShortcut::Options, ResidualOptions, Linear::Options>
      options;
  std::string name = {};  ///< Name of the layer in the names of its parameters.
};

/// The layers of an image network as data. Each member function adds layers after those so far. The
/// first layer computes no gradient of its input.
class ImageNetwork {
 public:
  struct Shape {
    std::size_t images;
    std::size_t height;
    std::size_t width;
    std::size_t channels;

    std::size_t features() const { return height * width * channels; }  ///< Elements per image.
  };
  struct Convolution {
    std::size_t channels;  ///< Output channels.
    std::size_t kernel;
    std::size_t stride = 1;
    std::size_t padding = 0;
  };
  /// The shortcut of a residual block that changes the size of an image: a `PaddedShortcut` (option
  /// A of the source), or a strided 1 × 1 convolution with batch norm (option B).
  enum class Shortcut { kPadded, kProjection };
  struct Block {
    std::size_t channels;  ///< Output channels.
    std::size_t stride;
    Shortcut shortcut;
  };

  /// A network of images of shape `input`; batch norms use `sum_over_ranks`, see BatchNorm.
  explicit ImageNetwork(const Shape& input, RankSums sum_over_ranks = {})
      : shape_(input), sum_over_ranks_(std::move(sum_over_ranks)) {}

  void convolution(const std::string& name, const Convolution& c) { convolution(name, c, true); }
  /// Adds a convolution without bias, called `name`, and its batch norm, called `norm`.
  void normalized_convolution(const std::string& name, const std::string& norm,
                              const Convolution& c);
  /// Adds ReLU; `ways` ranks divide its input among them.
  void relu(std::size_t ways = 1);
  void max_pool(std::size_t window, std::size_t stride, std::size_t padding);
  void average_pool();
  /// Adds a dense layer over all elements of an image. See Linear::Options for part and ranks.
  void dense(const std::string& name, std::size_t outputs, const Part& part = {},
             const TensorRanks& ranks = {});
  /// Adds a residual block: y = relu(norm(conv(relu(norm(conv(x))))) + shortcut(x)), with 3 × 3
  /// convolutions. Its layers are `name`.conv1, .norm1, .conv2, .norm2 and, for projections,
  /// .shortcut_conv and .shortcut_norm.
  ///
  /// Source: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016.
  void residual_block(const std::string& name, const Block& block);

  const ImageLayers& layers() const { return layers_; }
  const Shape& output() const { return shape_; }

 private:
  void convolution(const std::string& name, const Convolution& c, bool has_bias);
  /// A network without layers that begins with the output so far.
  ImageNetwork branch() const;
  bool has_input_gradient() const { return is_branch_ || !layers_.empty(); }

  Shape shape_;  // of the output so far
  RankSums sum_over_ranks_;
  bool is_branch_ = false;
  ImageLayers layers_;
};

/// Makes `layers` on the processor, registers their parameters in order and appends them to `to`.
/// `device` and `parameters` outlive `to`.
void append_layers(Sequential& to, Device& device, ParameterSet& parameters,
                   std::span<const ImageLayer> layers);

}  // namespace kolo::trainer
