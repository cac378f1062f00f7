#pragma once

#include <cstddef>

#include "trainer/layers/rank_sums.h"
#include "trainer/layers/sequential.h"
#include "trainer/models/model.h"
#include "trainer/models/pixel_scaling.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Shape of the data and the batch of an image model.
struct ImageModelOptions {
  std::size_t images;  ///< Images per batch.
  std::size_t height;
  std::size_t width;
  std::size_t channels = 1;  ///< Channels per pixel, which are adjacent in memory.
  std::size_t classes;
  std::size_t hidden;  ///< Width of the hidden dense layers.
  PixelScaling scaling;
  std::uint64_t seed;
  RankSums sum_over_ranks = {};  ///< See BatchNorm.
};

ImageModelOptions image_model_options(const ModelSetting& setting);

/// The defaults that all image models share.
void set_image_defaults(Config& config);

/// Inputs: one tensor, uint8 [height, width, channels]. A row of the output holds the logits of the
/// classes.
///
/// Scaled pixels through successive layers, which the derived class appends.
class ImageClassifier : public Model {
 public:
  std::span<const float> forward(std::span<const TensorView> inputs, const Pass& pass) override;
  void backward(std::span<const float> output_gradient) override;

 protected:
  explicit ImageClassifier(const ImageModelOptions& options);

  /// Deviation of initial weights that preserves the variance of activations through a ReLU.
  /// Source: He et al., "Delving Deep into Rectifiers", ICCV 2015.
  static float he_deviation(std::size_t inputs);

  Sequential layers_;

 private:
  PixelScaling scaling_;
  Tensor pixels_;
};

}  // namespace kolo::trainer
