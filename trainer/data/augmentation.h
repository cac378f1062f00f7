#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "trainer/data/dataset.h"
#include "trainer/random.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// The random changes that training makes to images. None changes the class of an image.
struct Augmentation {
  /// Largest number of rows and columns by which a crop moves an image.
  static constexpr std::size_t kMostMoved = 4;

  bool mirrors = false;  ///< Mirrors each image left to right with probability 1/2.
  /// Pads each image with kMostMoved rows and columns of zeros on each side, and cuts out a part of
  /// the original size at a random position.
  bool crops = false;

  bool is_empty() const { return !mirrors && !crops; }
};

/// Parses "mirror", "crop", "mirror,crop" or an empty text. Errors: UsageError naming the choices.
Augmentation parse_augmentation(const std::string& text);

/// The text of `augmentation` for `parse_augmentation`, with names in a fixed order.
std::string name_of(const Augmentation& augmentation);

/// Changes an image at random, in place. It draws equally many numbers for every `augmentation`.
///
/// Shape:  pixels is [height, width, channels] of `shape`.
/// Source: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, section 4.2.
void augment(std::span<std::uint8_t> pixels, const Shape& shape, const Augmentation& augmentation,
             Random random);

/// Whether samples of `format` are images, which `augment` can change.
bool takes_augmentation(const SampleFormat& format);

/// A data set with the samples of `images`, each changed at random in every epoch. A change depends
/// only on seed, index and epoch, and not on the number of ranks or loader threads.
///
/// Before: `takes_augmentation(images->format())`.
std::unique_ptr<Dataset> augmented(std::unique_ptr<Dataset> images,
                                   const Augmentation& augmentation, std::uint64_t seed);

}  // namespace kolo::trainer
