#pragma once

#include "trainer/models/convolutional_classifier.h"

namespace kolo::trainer {

class Device;

/// A convolutional network for small colour photographs: three 3 × 3 convolutions of 24, 48 and 64
/// channels that keep the size of the image, each with 2 × 2 max pooling and ReLU, then a hidden
/// dense layer and the classes.
class Convnet final : public ConvolutionalClassifier {
 public:
  static ModelEntry entry();

  /// Errors: UsageError for images smaller than 8 × 8. `device` outlives the model.
  Convnet(Device& device, const ImageModelOptions& options);
};

}  // namespace kolo::trainer
