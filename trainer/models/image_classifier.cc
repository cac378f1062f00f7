#include "trainer/models/image_classifier.h"

#include <cmath>

#include "comm/base/check.h"

namespace kolo::trainer {

ImageClassifier::ImageClassifier(const ImageModelOptions& options)
    : Model(options.seed),
      scaling_(options.scaling),
      pixels_({options.images, options.height, options.width, options.channels}) {}

float ImageClassifier::he_deviation(std::size_t inputs) {
  return std::sqrt(2.0f / static_cast<float>(inputs));
}

std::span<const float> ImageClassifier::forward(std::span<const std::uint8_t> inputs) {
  check(inputs.size() == pixels_.size(), "a model takes batches of the size it was made for");
  scaling_.apply(inputs, pixels_.span());
  return layers_.forward(pixels_.span());
}

void ImageClassifier::backward(std::span<const float> logits_gradient) {
  layers_.backward(logits_gradient);
}

}  // namespace kolo::trainer
