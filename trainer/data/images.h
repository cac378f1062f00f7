#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// The array of bytes in an IDX file.
struct IdxArray {
  Shape shape;  ///< Size of each dimension, outermost first, each at least 1.
  std::vector<std::uint8_t> bytes;
};

/// Reads a plain or gzip IDX file of unsigned bytes with `dimensions` dimensions.
///
/// Format: two zero bytes, type 8, the number of dimensions, then the dimensions as 32-bit
///         big-endian numbers, then the elements.
/// Errors: KoloError(kData) naming file and offset, for a file that is missing, unreadable,
///         truncated or corrupt, has a wrong magic number or number of dimensions, or has trailing
///         bytes. Memory use is bounded by the size of the file, whatever its header claims.
/// Source: LeCun, Cortes and Burges, "The MNIST database of handwritten digits".
IdxArray read_idx(const std::filesystem::path& file, std::size_t dimensions);

/// The contents of one file of CIFAR-10's binary version.
struct CifarBatch {
  static constexpr std::size_t kSide = 32;
  static constexpr std::size_t kChannels = 3;
  static constexpr std::size_t kClasses = 10;
  static constexpr std::size_t kImageBytes = kSide * kSide * kChannels;

  std::vector<std::uint8_t> pixels;  ///< Shape [images, 32, 32, 3]; the channels of a pixel are
                                     ///< adjacent.
  std::vector<std::uint8_t> labels;  ///< One label per image, in [0, 10).
};

/// Reads the records [begin, end) of a CIFAR-10 file, or fewer if the file has fewer.
///
/// Format: records of 3073 bytes: a label, then planes of red, green and blue, row by row.
/// Errors: KoloError(kData) naming file and offset, for a file that is missing or unreadable, has a
///         size that is not a multiple of a record, or has a label above 9.
/// Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
CifarBatch read_cifar(const std::filesystem::path& file, std::size_t begin = 0,
                      std::size_t end = static_cast<std::size_t>(-1));

/// A data set of images with labels, held in memory.
///
/// Format: the input "image", uint8 [height, width, channels], with mean and standard deviation of
///         all pixels; the target "label", int32 in [0, classes).
class ImageDataset final : public Dataset {
 public:
  /// Reads images and labels from two IDX files, plain or gzip.
  /// Errors: those of `read_idx`; KoloError(kData) naming file and offset if the files have
  ///         different numbers of entries or a label is not below `classes`.
  ImageDataset(const std::filesystem::path& images, const std::filesystem::path& labels,
               std::size_t classes);
  /// Takes the pixels of images of shape `shape`, one image after the other, and one label per
  /// image. Before: labels are below `classes`.
  ImageDataset(Shape shape, std::size_t classes, std::vector<std::uint8_t> pixels,
               std::vector<std::uint8_t> labels);
  /// Takes the images and labels of a CIFAR-10 file.
  explicit ImageDataset(CifarBatch batch);

  std::size_t size() const override { return labels_.size(); }
  const SampleFormat& format() const override { return format_; }
  void copy(std::size_t index, std::uint64_t epoch, std::span<const TensorSlot> inputs,
            std::span<const TensorSlot> targets) const override;

 private:
  SampleFormat format_;
  std::vector<std::uint8_t> pixels_;
  std::vector<std::uint8_t> labels_;
};

}  // namespace kolo::trainer
