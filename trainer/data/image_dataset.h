#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "trainer/data/cifar_file.h"
#include "trainer/data/dataset.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Images with labels, in memory.
class ImageDataset final : public Dataset {
 public:
  struct Statistics {
    double mean;
    double deviation;
  };

  /// Reads IDX images and labels (plain or gzip).
  /// Errors: KoloError(kData) as `read_idx`, and when the counts differ or a label is not below
  ///         `classes`, naming file and offset.
  ImageDataset(const std::filesystem::path& images, const std::filesystem::path& labels,
               std::size_t classes);
  /// Images of CIFAR-10.
  explicit ImageDataset(CifarBatch batch);

  std::size_t height() const { return shape_[1]; }
  std::size_t width() const { return shape_[2]; }
  std::size_t channels() const { return shape_[3]; }
  /// Mean and standard deviation of all bytes of pixels, in 0 … 255; the deviation is at least 1.
  Statistics statistics() const;

  std::size_t size() const override { return shape_[0]; }
  std::size_t input_bytes() const override { return height() * width() * channels(); }
  std::size_t target_bytes() const override { return 1; }
  void copy(std::size_t index, std::span<std::uint8_t> input,
            std::span<std::uint8_t> target) const override;

 private:
  Shape shape_;  // images, height, width, channels
  std::vector<std::uint8_t> pixels_;
  std::vector<std::uint8_t> labels_;
};

}  // namespace kolo::trainer
