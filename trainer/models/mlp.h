#pragma once

#include "trainer/models/image_classifier.h"

namespace kolo::trainer {

/// Two hidden dense layers with ReLU: pixels - hidden - hidden - classes.
class Mlp final : public ImageClassifier {
 public:
  static ModelEntry entry();

  explicit Mlp(const ImageModelOptions& options);
};

}  // namespace kolo::trainer
