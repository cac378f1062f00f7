#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// An array of bytes with its shape, from an IDX file.
struct IdxArray {
  Shape shape;  ///< Outermost first; no dimension is 0.
  std::vector<std::uint8_t> bytes;
};

/// Reads an IDX file of unsigned bytes with `dimensions` dimensions, plain or gzip.
///
/// Format: two zero bytes, type 8, the number of dimensions, then the dimensions as 32-bit
///         big-endian numbers, then the elements.
/// Errors: KoloError(kData) naming file and offset: missing, unreadable, wrong magic, truncated,
///         trailing bytes, corrupt gzip. Memory grows with the size of the file, not with the size
///         in its header.
/// Source: LeCun, Cortes and Burges, "The MNIST database of handwritten digits".
IdxArray read_idx(const std::filesystem::path& file, std::size_t dimensions);

/// The contents of one file of CIFAR-10's binary version.
struct CifarBatch {
  static constexpr std::size_t kSide = 32;
  static constexpr std::size_t kChannels = 3;
  static constexpr std::size_t kClasses = 10;
  static constexpr std::size_t kImageBytes = kSide * kSide * kChannels;

  std::vector<std::uint8_t> pixels;  ///< [images, 32, 32, 3], with the channels of a pixel
                                     ///< adjacent.
  std::vector<std::uint8_t> labels;  ///< Below 10.
};

/// Reads the records [begin, end) of a file, or fewer if the file ends before.
///
/// Format: records of 3073 bytes: a label, then planes of red, green and blue, row by row.
/// Errors: KoloError(kData) naming file and offset: missing or unreadable, a size that is not a
///         multiple of a record, a wrong label.
/// Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
CifarBatch read_cifar(const std::filesystem::path& file, std::size_t begin = 0,
                      std::size_t end = static_cast<std::size_t>(-1));

/// Images with labels, in memory.
///
/// Format: "image", uint8 [height, width, channels] with the mean and the deviation of all pixels,
///         and "label", int32 below the number of classes.
class ImageDataset final : public Dataset {
 public:
  /// Reads IDX images and labels (plain or gzip).
  /// Errors: KoloError(kData) as `read_idx`, and when the counts differ or a label is not below
  ///         `classes`, naming file and offset.
  ImageDataset(const std::filesystem::path& images, const std::filesystem::path& labels,
               std::size_t classes);
  /// Takes images of `shape` back to back, and as many labels. Before: the labels are below
  /// `classes`.
  ImageDataset(Shape shape, std::size_t classes, std::vector<std::uint8_t> pixels,
               std::vector<std::uint8_t> labels);
  /// Takes images of CIFAR-10.
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
