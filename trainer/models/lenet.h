#pragma once

#include "trainer/models/convolutional_classifier.h"

namespace kolo::trainer {

class Device;

/// A convolutional network of the LeNet-5 class: two 5 × 5 convolutions of 16 and 32 channels, each
/// with 2 × 2 max pooling and ReLU, then a hidden dense layer and the classes.
///
/// Source: LeCun et al., "Gradient-Based Learning Applied to Document Recognition", 1998; ReLU and
///         max pooling instead of tanh and averages.
class Lenet final : public ConvolutionalClassifier {
 public:
  static ModelEntry entry();

  /// Errors: UsageError for images smaller than 16 × 16. `device` outlives the model.
  Lenet(Device& device, const ImageModelOptions& options);
};

}  // namespace kolo::trainer
