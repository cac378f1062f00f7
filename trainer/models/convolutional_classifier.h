#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trainer/models/image_classifier.h"

namespace kolo::trainer {

class Device;

/// Convolutions, each with 2 × 2 max pooling and ReLU, then a hidden dense layer and the classes.
class ConvolutionalClassifier : public ImageClassifier {
 protected:
  /// All convolutions have one kernel size; `channels` lists the outputs of each.
  struct Convolutions {
    std::string model;       ///< Name of the model, for errors.
    std::size_t least_side;  ///< Smallest side of an image, in pixels.
    std::size_t kernel;
    std::size_t padding = 0;
    std::vector<std::size_t> channels;
  };

  /// Errors: UsageError for images that are too small. `device` outlives the model.
  ConvolutionalClassifier(Device& device, const ImageModelOptions& options,
                          const Convolutions& convolutions);
};

}  // namespace kolo::trainer
