#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trainer/layers/layer.h"
#include "trainer/models/image_network.h"
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

/// An image classifier: scaled pixels pass through the layers of a network.
///
/// Inputs: one tensor, uint8 [height, width, channels]. An output row holds the class logits.
class ImageClassifier : public Model {
 public:
  /// `device` outlives the model.
  ImageClassifier(Device& device, const ImageModelOptions& options, const ImageNetwork& network);

  std::span<const float> forward(std::span<const TensorView> inputs, const Pass& pass) override;
  void backward(std::span<const float> output_gradient) override;
  std::span<const float> input_gradient() const override { return input_gradient_; }

 protected:
  /// For models that append their layers themselves.
  explicit ImageClassifier(const ImageModelOptions& options);

  Sequential layers_;

 private:
  bool takes_pixels_;  // whether the inputs are pixels: in the first stage
  PixelScaling scaling_;
  Tensor pixels_;
  std::span<const float> input_gradient_;
};

/// A classifier of two hidden dense layers with ReLU: pixels - hidden - hidden - classes.
class Mlp final : public ImageClassifier {
 public:
  static ModelEntry entry();
  /// The layers of all stages.
  static ImageNetwork network(const ImageModelOptions& options);

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
class Lenet final : public ImageClassifier {
 public:
  static ModelEntry entry();
  /// Errors: UsageError if images are smaller than 16 × 16.
  static ImageNetwork network(const ImageModelOptions& options);

  /// `device` outlives the model. Errors: those of `network`.
  Lenet(Device& device, const ImageModelOptions& options)
      : ImageClassifier(device, options, network(options)) {}
};

/// A convolutional network for small colour photographs: three 3 × 3 convolutions of 24, 48 and 64
/// channels that keep the size of the image, each with 2 × 2 max pooling and ReLU, then a hidden
/// dense layer and the output layer.
class Convnet final : public ImageClassifier {
 public:
  static ModelEntry entry();
  /// Errors: UsageError for images smaller than 8 × 8.
  static ImageNetwork network(const ImageModelOptions& options);

  /// `device` outlives the model. Errors: those of `network`.
  Convnet(Device& device, const ImageModelOptions& options)
      : ImageClassifier(device, options, network(options)) {}
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
    ImageNetwork::Shortcut shortcut;    ///< Kind of shortcut in blocks that change the size.
  };

  static constexpr std::size_t kLargeSide = 64;

  /// A network of 20 layers with 16, 32 and 64 channels and padded shortcuts (option A), for CIFAR.
  static ModelEntry entry20();
  static Stages stages20() { return {{16, 32, 64}, 3, ImageNetwork::Shortcut::kPadded}; }
  static ImageNetwork network20(const ImageModelOptions& o) { return network(o, stages20()); }
  /// A network of 18 layers with 64 to 512 channels and projections (option B), for photographs.
  static ModelEntry entry18();
  static Stages stages18() { return {{64, 128, 256, 512}, 2, ImageNetwork::Shortcut::kProjection}; }
  static ImageNetwork network18(const ImageModelOptions& o) { return network(o, stages18()); }
  /// Errors: UsageError for images smaller than 8 × 8.
  static ImageNetwork network(const ImageModelOptions& options, const Stages& stages);

  /// `device` outlives the model. Errors: those of `network`.
  Resnet(Device& device, const ImageModelOptions& options, const Stages& stages)
      : ImageClassifier(device, options, network(options, stages)) {}
};

}  // namespace kolo::trainer
