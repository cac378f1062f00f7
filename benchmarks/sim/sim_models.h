#pragma once

#include <string>
#include <vector>

#include "fusion/gradient.h"

namespace kolo::bench {

/// The gradients of a model and the arithmetic of one sample, for predictions of step time.
struct ModelPreset {
  std::string name;
  /// In the order in which a program registers them, first layer first.
  std::vector<GradientSpec> gradients = {};
  /// Floating-point operations per sample of each gradient's layer, forward; the operations of
  /// biases and norms are counted with the weight. Backward takes twice as many.
  std::vector<double> flops = {};
  int batch = 1;  ///< Samples per rank and step, unless told otherwise.

  std::size_t parameters() const;
  double forward_flops() const;
};

/// "resnet50": 25.6 M parameters, images of 224 x 224. "gpt1b": 1.0 B parameters, 22 blocks of
/// width 1792, sequences of 1024 tokens. Errors: KoloError(kConfig) naming the known models.
ModelPreset model_preset(const std::string& name);

}  // namespace kolo::bench
