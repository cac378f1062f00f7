#include "trainer/data/image_dataset.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "comm/base/check.h"
#include "trainer/data/data_error.h"
#include "trainer/data/idx_file.h"

namespace kolo::trainer {
namespace {

/// `shape` is that of an image; the deviation is at least 1.
SampleFormat image_format(Shape shape, std::size_t classes, std::span<const std::uint8_t> pixels) {
  // Exact integer sums: the same on every machine.
  std::uint64_t sum = 0;
  std::uint64_t squares = 0;
  for (const std::uint8_t pixel : pixels) {
    sum += pixel;
    squares += std::uint64_t{pixel} * pixel;
  }
  const auto count = static_cast<double>(std::max<std::size_t>(pixels.size(), 1));
  const double mean = static_cast<double>(sum) / count;
  const double variance = static_cast<double>(squares) / count - mean * mean;
  return {.inputs = {{.name = "image",
                      .dtype = DType::kUInt8,
                      .shape = std::move(shape),
                      .mean = mean,
                      .deviation = std::max(1.0, std::sqrt(std::max(0.0, variance)))}},
          .targets = {{.name = "label", .dtype = DType::kInt32, .values = classes}}};
}

}  // namespace

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
  pixels_ = std::move(images.bytes);
  format_ = image_format({images.shape[1], images.shape[2], 1}, classes, pixels_);
  labels_ = std::move(labels.bytes);
}

ImageDataset::ImageDataset(Shape shape, std::size_t classes, std::vector<std::uint8_t> pixels,
                           std::vector<std::uint8_t> labels)
    : format_(image_format(std::move(shape), classes, pixels)),
      pixels_(std::move(pixels)),
      labels_(std::move(labels)) {
  check(pixels_.size() == labels_.size() * format_.inputs[0].elements(),
        "an image data set has a label for each image");
}

ImageDataset::ImageDataset(CifarBatch batch)
    : ImageDataset({CifarBatch::kSide, CifarBatch::kSide, CifarBatch::kChannels},
                   CifarBatch::kClasses, std::move(batch.pixels), std::move(batch.labels)) {}

void ImageDataset::copy(std::size_t index, std::uint64_t, std::span<const TensorSlot> inputs,
                        std::span<const TensorSlot> targets) const {
  check(index < size(), "a sample of an image data set is copied by its index");
  const std::span<std::uint8_t> pixels = inputs[0].as<std::uint8_t>();
  std::copy_n(pixels_.begin() + static_cast<std::ptrdiff_t>(index * pixels.size()), pixels.size(),
              pixels.begin());
  targets[0].as<std::int32_t>()[0] = labels_[index];
}

}  // namespace kolo::trainer
