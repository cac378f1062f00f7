#include "trainer/data/image_dataset.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "comm/base/check.h"
#include "trainer/data/data_error.h"
#include "trainer/data/idx_file.h"

namespace kolo::trainer {

ImageDataset::ImageDataset(const std::filesystem::path& images_file,
                           const std::filesystem::path& labels_file, std::size_t classes) {
  constexpr std::size_t kLabelsBegin = 8;  // after the magic number and one dimension
  IdxArray images = read_idx(images_file, 3);
  IdxArray labels = read_idx(labels_file, 1);
  if (labels.shape[0] != images.shape[0]) {
    throw_data_error(labels_file, 4,
                     std::to_string(labels.shape[0]) + " labels for the " +
                         std::to_string(images.shape[0]) + " images of " + images_file.string());
  }
  const auto wrong = std::find_if(labels.bytes.begin(), labels.bytes.end(),
                                  [=](std::uint8_t label) { return label >= classes; });
  if (wrong != labels.bytes.end()) {
    const auto index = static_cast<std::uint64_t>(wrong - labels.bytes.begin());
    throw_data_error(
        labels_file, kLabelsBegin + index,
        "label " + std::to_string(*wrong) + " is not below " + std::to_string(classes));
  }
  shape_ = {images.shape[0], images.shape[1], images.shape[2], 1};
  pixels_ = std::move(images.bytes);
  labels_ = std::move(labels.bytes);
}

ImageDataset::ImageDataset(CifarBatch batch)
    : shape_({batch.labels.size(), CifarBatch::kSide, CifarBatch::kSide, CifarBatch::kChannels}),
      pixels_(std::move(batch.pixels)),
      labels_(std::move(batch.labels)) {}

ImageDataset::Statistics ImageDataset::statistics() const {
  // Exact integer sums: the same on every machine.
  std::uint64_t sum = 0;
  std::uint64_t squares = 0;
  for (const std::uint8_t pixel : pixels_) {
    sum += pixel;
    squares += std::uint64_t{pixel} * pixel;
  }
  const auto count = static_cast<double>(pixels_.size());
  const double mean = static_cast<double>(sum) / count;
  const double variance = static_cast<double>(squares) / count - mean * mean;
  return {.mean = mean, .deviation = std::max(1.0, std::sqrt(std::max(0.0, variance)))};
}

void ImageDataset::copy(std::size_t index, std::span<std::uint8_t> input,
                        std::span<std::uint8_t> target) const {
  check(index < size() && input.size() == input_bytes() && target.size() == 1,
        "a sample of an image data set is copied by its index");
  std::copy_n(pixels_.begin() + static_cast<std::ptrdiff_t>(index * input.size()), input.size(),
              input.begin());
  target[0] = labels_[index];
}

}  // namespace kolo::trainer
