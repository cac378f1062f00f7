#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "trainer/data/cifar_file.h"
#include "trainer/data/dataset.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Images with labels, in memory.
///
/// Format: "image", uint8 [height, width, channels] with the mean and the deviation of all pixels,
///         and "label", int32 below the classes.
class ImageDataset final : public Dataset {
 public:
  /// Reads IDX images and labels (plain or gzip).
  /// Errors: KoloError(kData) as `read_idx`, and when the counts differ or a label is not below
  ///         `classes`, naming file and offset.
  ImageDataset(const std::filesystem::path& images, const std::filesystem::path& labels,
               std::size_t classes);
  /// Images of `shape` back to back, and as many labels. Before: the labels are below `classes`.
  ImageDataset(Shape shape, std::size_t classes, std::vector<std::uint8_t> pixels,
               std::vector<std::uint8_t> labels);
  /// Images of CIFAR-10.
  explicit ImageDataset(CifarBatch batch);

  const Shape& image_shape() const { return format_.inputs[0].shape; }

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
