#include "trainer/data/images.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "trainer/config.h"
#include "trainer/data/files.h"
#include "trainer/errors.h"
#include "trainer/table/table.h"

namespace kolo::trainer {
namespace {

constexpr std::uint8_t kUnsignedByte = 8;
constexpr std::size_t kHeaderBytes = 4;
constexpr std::size_t kReadBytes = std::size_t{1} << 20;

std::size_t big_endian(const std::array<std::uint8_t, 4>& bytes) {
  return std::size_t{bytes[0]} << 24 | std::size_t{bytes[1]} << 16 | std::size_t{bytes[2]} << 8 |
         std::size_t{bytes[3]};
}

constexpr std::size_t kPlane = CifarBatch::kSide * CifarBatch::kSide;
constexpr std::size_t kRecord = 1 + CifarBatch::kImageBytes;

/// The format of a data set of images with shape `shape`. Its deviation is at least 1.
SampleFormat image_format(Shape shape, std::size_t classes, std::span<const std::uint8_t> pixels) {
  // Integer sums are exact, so they are equal on every machine.
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

constexpr std::size_t kMnistClasses = 10;

/// Without CIFAR-10's test images, one image in kHeldOutShare is held out.
constexpr std::size_t kHeldOutShare = 10;

std::unique_ptr<ImageDataset> load_part(const std::filesystem::path& directory,
                                        const std::string& part) {
  const auto images = find_plain_or_packed(directory / (part + "-images-idx3-ubyte"));
  const auto labels = find_plain_or_packed(directory / (part + "-labels-idx1-ubyte"));
  return std::make_unique<ImageDataset>(images, labels, kMnistClasses);
}

bool has_mnist(const std::filesystem::path& directory) {
  return is_there_plain_or_packed(directory / "train-images-idx3-ubyte");
}

DataSplit load_mnist(const Config& config) {
  const std::filesystem::path& directory = config.data;
  return {.train = load_part(directory, "train"), .held_out = load_part(directory, "t10k")};
}

std::filesystem::path cifar_part(const std::filesystem::path& directory, std::size_t number) {
  return directory / ("data_batch_" + std::to_string(number) + ".bin");
}

void append(CifarBatch& all, const CifarBatch& part) {
  all.pixels.insert(all.pixels.end(), part.pixels.begin(), part.pixels.end());
  all.labels.insert(all.labels.end(), part.labels.begin(), part.labels.end());
}

/// Removes the last `count` images from `all` and returns them.
CifarBatch split_off(CifarBatch& all, std::size_t count) {
  const auto pixels = static_cast<std::ptrdiff_t>(count * CifarBatch::kImageBytes);
  const auto labels = static_cast<std::ptrdiff_t>(count);
  CifarBatch last{.pixels = {all.pixels.end() - pixels, all.pixels.end()},
                  .labels = {all.labels.end() - labels, all.labels.end()}};
  all.pixels.resize(all.pixels.size() - last.pixels.size());
  all.labels.resize(all.labels.size() - last.labels.size());
  return last;
}

bool has_cifar(const std::filesystem::path& directory) {
  return is_there(cifar_part(directory, 1));
}

DataSplit load_cifar(const Config& config) {
  const std::filesystem::path& directory = config.data;
  CifarBatch train;
  std::size_t number = 1;
  do {
    append(train, read_cifar(cifar_part(directory, number)));
  } while (is_there(cifar_part(directory, ++number)));
  const std::filesystem::path test = directory / "test_batch.bin";
  const bool has_test = is_there(test);
  CifarBatch held_out =
      has_test ? read_cifar(test) : split_off(train, train.labels.size() / kHeldOutShare);
  return {.train = std::make_unique<ImageDataset>(std::move(train)),
          .held_out = std::make_unique<ImageDataset>(std::move(held_out))};
}

constexpr std::size_t kSide = 8;
constexpr std::size_t kPixels = kSide * kSide;
constexpr std::size_t kDigits = 10;
constexpr std::int64_t kMostInk = 16;

std::unique_ptr<ImageDataset> read_digits(const std::filesystem::path& file) {
  const Table table = read_delimited(file, {.has_header = false});
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint8_t> labels;
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    if (table.columns.size() != kPixels + 1) {
      table.fail(row, std::to_string(table.columns.size()) + " numbers in place of 65");
    }
    for (std::size_t column = 0; column <= kPixels; ++column) {
      const auto value = table.number<std::int64_t>(row, column);
      const bool is_label = column == kPixels;
      if (value < 0 || value > (is_label ? std::int64_t{kDigits} - 1 : kMostInk)) {
        table.fail(row, std::string(is_label ? "label " : "pixel ") + std::to_string(value) +
                            " is out of range");
      }
      (is_label ? labels : pixels).push_back(static_cast<std::uint8_t>(value));
    }
  }
  return std::make_unique<ImageDataset>(Shape{kSide, kSide, 1}, kDigits, std::move(pixels),
                                        std::move(labels));
}

}  // namespace

IdxArray read_idx(const std::filesystem::path& file, std::size_t dimensions) {
  PackedFile reader(file);
  std::array<std::uint8_t, kHeaderBytes> magic{};
  reader.read_all(magic, "the magic number");
  if (magic[0] != 0 || magic[1] != 0 || magic[2] != kUnsignedByte || magic[3] != dimensions) {
    throw_data_error(file, 0,
                     fmt::format("wrong magic number: {} in place of {}", big_endian(magic),
                                 kUnsignedByte << 8 | dimensions));
  }

  IdxArray array;
  std::size_t total = 1;
  for (std::size_t i = 0; i < dimensions; ++i) {
    std::array<std::uint8_t, 4> bytes{};
    reader.read_all(bytes, "the dimensions");
    const std::size_t dimension = big_endian(bytes);
    if (dimension == 0) reader.fail("a dimension is 0");
    if (total > std::numeric_limits<std::size_t>::max() / dimension) {
      reader.fail("the dimensions overflow");
    }
    total *= dimension;
    array.shape.push_back(dimension);
  }

  while (array.bytes.size() < total) {
    const std::size_t begin = array.bytes.size();
    const std::size_t wanted = std::min(kReadBytes, total - begin);
    array.bytes.resize(begin + wanted);
    if (reader.read(std::span(array.bytes).subspan(begin)) < wanted) {
      reader.fail(fmt::format("the file ends before its {} elements", total));
    }
  }
  std::array<std::uint8_t, 1> beyond{};
  if (reader.read(beyond) > 0) {
    reader.fail(fmt::format("the file has bytes after its {} elements", total));
  }
  return array;
}

CifarBatch read_cifar(const std::filesystem::path& file, std::size_t begin, std::size_t end) {
  const MappedFile mapped(file);
  const std::span<const std::uint8_t> bytes = mapped.bytes();
  if (bytes.empty() || bytes.size() % kRecord != 0) {
    throw_data_error(
        file, bytes.size(),
        "the size is not a multiple of a record of " + std::to_string(kRecord) + " bytes");
  }
  CifarBatch batch;
  end = std::min(end, bytes.size() / kRecord);
  for (std::size_t record = begin; record < end; ++record) {
    const auto label = bytes[record * kRecord];
    if (label >= CifarBatch::kClasses) {
      throw_data_error(file, record * kRecord,
                       "label " + std::to_string(label) + " is not below 10");
    }
    batch.labels.push_back(label);
    const auto planes = bytes.subspan(record * kRecord + 1, CifarBatch::kImageBytes);
    for (std::size_t pixel = 0; pixel < kPlane; ++pixel) {
      for (std::size_t channel = 0; channel < CifarBatch::kChannels; ++channel) {
        batch.pixels.push_back(planes[channel * kPlane + pixel]);
      }
    }
  }
  return batch;
}

ImageDataset::ImageDataset(const std::filesystem::path& images_file,
                           const std::filesystem::path& labels_file, std::size_t classes) {
  constexpr std::size_t kLabelsBegin = 8;  // offset after the magic number and one dimension
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

DatasetEntry mnist_entry() {
  return {.name = "mnist",
          .task = "image-classification",
          .help =
              "a directory with train-images-idx3-ubyte and the other three files of MNIST, or "
              "of a set in its format, each plain or .gz; the t10k files are held out",
          .accepts = has_mnist,
          .load = load_mnist};
}

DatasetEntry cifar10_entry() {
  return {.name = "cifar10",
          .task = "image-classification",
          .help =
              "a directory with data_batch_1.bin and so on; test_batch.bin is held out, or else "
              "the last tenth",
          .accepts = has_cifar,
          .load = load_cifar};
}

DatasetEntry optdigits_entry() {
  return {.name = "optdigits",
          .task = "image-classification",
          .help = "a directory with optdigits.tra and optdigits.tes, which is held out",
          .accepts =
              [](const std::filesystem::path& directory) {
                return is_there(directory / "optdigits.tra");
              },
          .load =
              [](const Config& config) {
                return DataSplit{.train = read_digits(config.data / "optdigits.tra"),
                                 .held_out = read_digits(config.data / "optdigits.tes")};
              }};
}

}  // namespace kolo::trainer
