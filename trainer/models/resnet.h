#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trainer/layers/residual_block.h"
#include "trainer/models/image_classifier.h"

namespace kolo::trainer {

class Device;

/// A residual network: a first convolution, stages of residual blocks of which each but the first
/// halves the image, the mean over all pixels, and the classes.
///
/// The first convolution is 3 × 3 and keeps the size; images of `kLargeSide` pixels or more take a
/// 7 × 7 one of stride 2 and a 3 × 3 max pooling of stride 2.
/// Source: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016.
class Resnet final : public ImageClassifier {
 public:
  struct Stages {
    std::vector<std::size_t> channels;  ///< One stage each.
    std::size_t blocks;                 ///< Of a stage.
    ResidualBlock::Shortcut shortcut;   ///< Where a block changes the size.
  };

  static constexpr std::size_t kLargeSide = 64;

  /// 20 layers of 16, 32 and 64 channels with padded shortcuts (option A), for CIFAR.
  static ModelEntry entry20();
  static Stages stages20() { return {{16, 32, 64}, 3, ResidualBlock::Shortcut::kPadded}; }
  /// 18 layers of 64 to 512 channels with projections (option B), for photographs.
  static ModelEntry entry18();
  static Stages stages18() {
    return {{64, 128, 256, 512}, 2, ResidualBlock::Shortcut::kProjection};
  }

  /// Errors: UsageError for images smaller than 8 × 8. `device` outlives the model.
  Resnet(Device& device, const ImageModelOptions& options, const Stages& stages);
};

}  // namespace kolo::trainer
