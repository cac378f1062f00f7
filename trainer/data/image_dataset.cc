#include "trainer/data/image_dataset.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "comm/base/check.h"
#include "trainer/data/data_error.h"

namespace kolo::trainer {

ImageDataset::ImageDataset(const std::filesystem::path& images, const std::filesystem::path& labels,
                           std::size_t classes)
    : images_(read_idx(images, 3)), labels_(read_idx(labels, 1)) {
  constexpr std::size_t kLabelsBegin = 8;  // after the magic number and one dimension
  if (labels_.shape[0] != images_.shape[0]) {
    throw_data_error(labels, 4,
                     std::to_string(labels_.shape[0]) + " labels for the " +
                         std::to_string(images_.shape[0]) + " images of " + images.string());
  }
  const auto wrong = std::find_if(labels_.bytes.begin(), labels_.bytes.end(),
                                  [=](std::uint8_t label) { return label >= classes; });
  if (wrong != labels_.bytes.end()) {
    const auto index = static_cast<std::uint64_t>(wrong - labels_.bytes.begin());
    throw_data_error(
        labels, kLabelsBegin + index,
        "label " + std::to_string(*wrong) + " is not below " + std::to_string(classes));
  }
}

ImageDataset::Statistics ImageDataset::statistics() const {
  // Exact integer sums: the same on every machine.
  std::uint64_t sum = 0;
  std::uint64_t squares = 0;
  for (const std::uint8_t pixel : images_.bytes) {
    sum += pixel;
    squares += std::uint64_t{pixel} * pixel;
  }
  const auto count = static_cast<double>(images_.bytes.size());
  const double mean = static_cast<double>(sum) / count;
  const double variance = static_cast<double>(squares) / count - mean * mean;
  return {.mean = mean, .deviation = std::max(1.0, std::sqrt(std::max(0.0, variance)))};
}

void ImageDataset::copy(std::size_t index, std::span<std::uint8_t> input,
                        std::span<std::uint8_t> target) const {
  check(index < size() && input.size() == input_bytes() && target.size() == 1,
        "a sample of an image data set is copied by its index");
  std::copy_n(images_.bytes.begin() + static_cast<std::ptrdiff_t>(index * input.size()),
              input.size(), input.begin());
  target[0] = labels_.bytes[index];
}

}  // namespace kolo::trainer
