#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "trainer/data/dataset.h"
#include "trainer/random.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Random changes of images that keep their class.
struct Augmentation {
  /// Most rows and columns by which "crop" moves an image.
  static constexpr std::size_t kMostMoved = 4;

  bool mirrors = false;  ///< Half of the images, chosen at random, are mirrored left to right.
  /// Pads images with kMostMoved rows and columns of zeros on each side, and cuts out a part of the
  /// original size at a random position.
  bool crops = false;

  bool is_empty() const { return !mirrors && !crops; }
};

/// Parses "mirror", "crop", both with a comma, or nothing. Errors: UsageError naming the choices.
Augmentation parse_augmentation(const std::string& text);

/// The text that `parse_augmentation` parses, always in the same order.
std::string name_of(const Augmentation& augmentation);

/// Changes an image in place with the next numbers of `random`. Draws equally many numbers for
/// every choice of changes.
///
/// Shape:  pixels is [height, width, channels] of `shape`.
/// Source: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, section 4.2.
void augment(std::span<std::uint8_t> pixels, const Shape& shape, const Augmentation& augmentation,
             Random random);

/// Whether samples of `format` are images that can be augmented.
bool takes_augmentation(const SampleFormat& format);

/// The samples of `images`, changed anew in each epoch. The change depends only on seed, index and
/// epoch, so any number of ranks and loader threads yields the same samples.
///
/// Before: `takes_augmentation(images->format())`.
std::unique_ptr<Dataset> augmented(std::unique_ptr<Dataset> images,
                                   const Augmentation& augmentation, std::uint64_t seed);

}  // namespace kolo::trainer
