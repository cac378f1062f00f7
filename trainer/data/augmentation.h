#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "trainer/data/dataset.h"
#include "trainer/random.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Random changes of images that leave their class as it is.
struct Augmentation {
  /// Rows and columns that "crop" moves an image by at most.
  static constexpr std::size_t kMostMoved = 4;

  bool mirrors = false;  ///< Left and right change places in one image in two.
  /// Images get kMostMoved rows and columns of zeros on each side, and a part of the former size is
  /// cut out at random.
  bool crops = false;

  bool is_empty() const { return !mirrors && !crops; }
};

/// "mirror", "crop", both with a comma, or nothing. Errors: UsageError naming the choices.
Augmentation parse_augmentation(const std::string& text);

/// The text, always in the same order.
std::string name_of(const Augmentation& augmentation);

/// Changes an image in place with the next numbers of `random`, as many whatever the changes.
///
/// Shape:  pixels is [height, width, channels] of `shape`.
/// Source: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, section 4.2.
void augment(std::span<std::uint8_t> pixels, const Shape& shape, const Augmentation& augmentation,
             Random random);

/// Whether samples of `format` are images that can be changed.
bool takes_augmentation(const SampleFormat& format);

/// The samples of `images`, changed anew in each epoch. The change follows from seed, index and
/// epoch alone, so it is the same whatever the number of ranks and of loader threads.
///
/// Before: `takes_augmentation(images->format())`.
std::unique_ptr<Dataset> augmented(std::unique_ptr<Dataset> images,
                                   const Augmentation& augmentation, std::uint64_t seed);

}  // namespace kolo::trainer
