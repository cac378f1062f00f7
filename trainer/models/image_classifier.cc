#include "trainer/models/image_classifier.h"

#include <cmath>

#include "comm/base/check.h"
#include "trainer/config.h"

namespace kolo::trainer {

ImageModelOptions image_model_options(const ModelSetting& setting) {
  const Field& image = setting.format.inputs[0];
  return {.images = setting.batch,
          .height = image.shape.at(0),
          .width = image.shape.at(1),
          .channels = image.shape.at(2),
          .classes = setting.outputs,
          .hidden = setting.config.hidden,
          .scaling = PixelScaling(image.mean, image.deviation),
          .seed = setting.config.seed,
          .sum_over_ranks = setting.sum_over_ranks};
}

void set_image_defaults(Config& config) {
  config.epochs = 3;
  config.batch = 32;
  config.lr = 2e-3f;
  config.final_lr_share = 0.0f;
  config.warmup_steps = 50;
  config.optimizer_options.weight_decay = 0.01f;
  config.log_every = 100;
}

ImageClassifier::ImageClassifier(const ImageModelOptions& options)
    : Model(options.seed),
      scaling_(options.scaling),
      pixels_({options.images, options.height, options.width, options.channels}) {}

float ImageClassifier::he_deviation(std::size_t inputs) {
  return std::sqrt(2.0f / static_cast<float>(inputs));
}

std::span<const float> ImageClassifier::forward(std::span<const TensorView> inputs,
                                                const Pass& pass) {
  const std::span<const std::uint8_t> bytes = inputs[0].as<std::uint8_t>();
  check(bytes.size() == pixels_.size(), "a model takes batches of the size it was made for");
  scaling_.apply(bytes, pixels_.span());
  return layers_.forward(pixels_.span(), pass);
}

void ImageClassifier::backward(std::span<const float> output_gradient) {
  layers_.backward(output_gradient);
}

}  // namespace kolo::trainer
