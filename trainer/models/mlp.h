#pragma once

#include "trainer/models/image_classifier.h"

namespace kolo::trainer {

class Device;

/// Two hidden dense layers with ReLU: pixels - hidden - hidden - classes.
class Mlp final : public ImageClassifier {
 public:
  static ModelEntry entry();

  /// `device` outlives the model.
  Mlp(Device& device, const ImageModelOptions& options);
};

}  // namespace kolo::trainer
