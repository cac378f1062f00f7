#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/layers/layer.h"
#include "trainer/layers/residual_block.h"
#include "trainer/models/model.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Scales pixel bytes to mean 0 and standard deviation 1: y = (byte - mean) / deviation.
class PixelScaling {
 public:
  PixelScaling(double mean, double deviation) {
    for (std::size_t byte = 0; byte < table_.size(); ++byte) {
      table_[byte] = static_cast<float>((static_cast<double>(byte) - mean) / deviation);
    }
  }

  /// Writes the scaled `bytes` to `out`. Before: equal sizes.
  void apply(std::span<const std::uint8_t> bytes, std::span<float> out) const {
    for (std::size_t i = 0; i < bytes.size(); ++i) out[i] = table_[bytes[i]];
  }

 private:
  std::array<float, 256> table_;
};

/// The shape of the data and other settings of an image model.
struct ImageModelOptions {
  std::size_t images;  ///< Number of images per batch.
  std::size_t height;
  std::size_t width;
  std::size_t channels = 1;  ///< Channels per pixel, adjacent in memory.
  std::size_t classes;
  std::size_t hidden;  ///< Width of the hidden dense layers.
  PixelScaling scaling;
  std::uint64_t seed;
  RankSums sum_over_ranks = {};        ///< Sums over ranks for batch norms; see BatchNorm.
  TensorRanks ranks = {};              ///< Ranks that divide the first hidden layer of Mlp.
  Stage stage = {};                    ///< This rank's range of the dense layers of Mlp.
  ParameterSet* parameters = nullptr;  ///< Set that models share; null: the model has its own.
};

class Device;

ImageModelOptions image_model_options(const ModelSetting& setting);

/// Sets the defaults of options that all image models share.
void set_image_defaults(Config& config);

/// An image classifier: scaled pixels pass through layers, which the derived class appends.
///
/// Inputs: one tensor, uint8 [height, width, channels]. An output row holds the class logits.
class ImageClassifier : public Model {
 public:
  std::span<const float> forward(std::span<const TensorView> inputs, const Pass& pass) override;
  void backward(std::span<const float> output_gradient) override;
  std::span<const float> input_gradient() const override { return input_gradient_; }

 protected:
  explicit ImageClassifier(const ImageModelOptions& options);

  /// The standard deviation of initial weights with which a ReLU layer of `inputs` inputs preserves
  /// the variance of activations. Source: He et al., "Delving Deep into Rectifiers", ICCV 2015.
  static float he_deviation(std::size_t inputs);

  /// Appends a dense layer; its weight has the shape [outputs, inputs].
  void append_linear(Device& device, const char* name, std::size_t inputs, std::size_t outputs,
                     bool input_gradient = true, const Part& part = {},
                     const TensorRanks& ranks = {});

  Sequential layers_;

 private:
  bool takes_pixels_;  // whether the inputs are pixels: in the first stage
  PixelScaling scaling_;
  Tensor pixels_;
  std::span<const float> input_gradient_;
};

/// A classifier of convolutions, each with 2 × 2 max pooling and ReLU, then a hidden dense layer
/// and the output layer.
class ConvolutionalClassifier : public ImageClassifier {
 protected:
  /// Convolutions of one kernel size. `channels` lists their output channels.
  struct Convolutions {
    std::string model;       ///< Name of the model, for error messages.
    std::size_t least_side;  ///< Smallest allowed side of an image, in pixels.
    std::size_t kernel;
    std::size_t padding = 0;
    std::vector<std::size_t> channels;
  };

  /// `device` outlives the model. Errors: UsageError if images are smaller than least_side.
  ConvolutionalClassifier(Device& device, const ImageModelOptions& options,
                          const Convolutions& convolutions);
};

/// A classifier of two hidden dense layers with ReLU: pixels - hidden - hidden - classes.
class Mlp final : public ImageClassifier {
 public:
  static ModelEntry entry();

  /// `device` outlives the model.
  Mlp(Device& device, const ImageModelOptions& options);

  std::size_t stage_inputs() const override { return stage_inputs_; }

 private:
  std::size_t stage_inputs_ = 0;
};

/// A convolutional network similar to LeNet-5: two 5 × 5 convolutions of 16 and 32 channels, each
/// with 2 × 2 max pooling and ReLU, then a hidden dense layer and the output layer.
///
/// Source: LeCun et al., "Gradient-Based Learning Applied to Document Recognition", 1998, with ReLU
///         and max pooling instead of tanh and averages.
class Lenet final : public ConvolutionalClassifier {
 public:
  static ModelEntry entry();

  /// `device` outlives the model. Errors: UsageError if images are smaller than 16 × 16.
  Lenet(Device& device, const ImageModelOptions& options);
};

/// A convolutional network for small colour photographs: three 3 × 3 convolutions of 24, 48 and 64
/// channels that keep the size of the image, each with 2 × 2 max pooling and ReLU, then a hidden
/// dense layer and the output layer.
class Convnet final : public ConvolutionalClassifier {
 public:
  static ModelEntry entry();

  /// Errors: UsageError for images smaller than 8 × 8. `device` outlives the model.
  Convnet(Device& device, const ImageModelOptions& options);
};

/// A residual network: a first convolution, stages of residual blocks, the mean over all pixels,
/// and the output layer. Each stage after the first halves the sides of the image.
///
/// The first convolution is 3 × 3 and keeps the size. For images with sides of at least
/// `kLargeSide` pixels, it is 7 × 7 with stride 2, followed by 3 × 3 max pooling with stride 2.
/// Source: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016.
class Resnet final : public ImageClassifier {
 public:
  struct Stages {
    std::vector<std::size_t> channels;  ///< Output channels of each stage.
    std::size_t blocks;                 ///< Number of blocks per stage.
    ResidualBlock::Shortcut shortcut;   ///< Kind of shortcut in blocks that change the size.
  };

  static constexpr std::size_t kLargeSide = 64;

  /// A network of 20 layers with 16, 32 and 64 channels and padded shortcuts (option A), for CIFAR.
  static ModelEntry entry20();
  static Stages stages20() { return {{16, 32, 64}, 3, ResidualBlock::Shortcut::kPadded}; }
  /// A network of 18 layers with 64 to 512 channels and projections (option B), for photographs.
  static ModelEntry entry18();
  static Stages stages18() {
    return {{64, 128, 256, 512}, 2, ResidualBlock::Shortcut::kProjection};
  }

  /// Errors: UsageError for images smaller than 8 × 8. `device` outlives the model.
  Resnet(Device& device, const ImageModelOptions& options, const Stages& stages);
};

}  // namespace kolo::trainer
