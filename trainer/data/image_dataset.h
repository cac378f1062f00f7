#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/data/idx_file.h"

namespace kolo::trainer {

/// Grey images with labels, in memory.
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

  std::size_t height() const { return images_.shape[1]; }
  std::size_t width() const { return images_.shape[2]; }
  /// Mean and standard deviation of all pixels, in 0 … 255; the deviation is at least 1.
  Statistics statistics() const;

  std::size_t size() const override { return images_.shape[0]; }
  std::size_t input_bytes() const override { return height() * width(); }
  std::size_t target_bytes() const override { return 1; }
  void copy(std::size_t index, std::span<std::uint8_t> input,
            std::span<std::uint8_t> target) const override;

 private:
  IdxArray images_;
  IdxArray labels_;
};

}  // namespace kolo::trainer
