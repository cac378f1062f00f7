// Data sets of images: MNIST and CIFAR-10.

#include <cstddef>
#include <string>
#include <utility>

#include "trainer/config.h"
#include "trainer/data/data_error.h"
#include "trainer/data/dataset_entry.h"
#include "trainer/data/image_dataset.h"

namespace kolo::trainer {
namespace {

constexpr std::size_t kMnistClasses = 10;

/// One image in ten is held out if CIFAR-10's test images are missing: 2,000 of two batches.
constexpr std::size_t kHeldOutShare = 10;

std::filesystem::path plain_or_gzip(const std::filesystem::path& directory,
                                    const std::string& name) {
  const std::filesystem::path plain = directory / name;
  const std::filesystem::path packed = directory / (name + ".gz");
  std::error_code ignored;
  if (std::filesystem::exists(plain, ignored)) return plain;
  if (std::filesystem::exists(packed, ignored)) return packed;
  throw_data_error(plain, "no such file, with or without .gz");
}

std::unique_ptr<ImageDataset> load_part(const std::filesystem::path& directory,
                                        const std::string& part) {
  const auto images = plain_or_gzip(directory, part + "-images-idx3-ubyte");
  const auto labels = plain_or_gzip(directory, part + "-labels-idx1-ubyte");
  return std::make_unique<ImageDataset>(images, labels, kMnistClasses);
}

bool has_mnist(const std::filesystem::path& directory) {
  std::error_code ignored;
  return std::filesystem::exists(directory / "train-images-idx3-ubyte", ignored) ||
         std::filesystem::exists(directory / "train-images-idx3-ubyte.gz", ignored);
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

/// Moves the last `count` images out of `all`.
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
  std::error_code ignored;
  return std::filesystem::exists(cifar_part(directory, 1), ignored);
}

DataSplit load_cifar(const Config& config) {
  const std::filesystem::path& directory = config.data;
  CifarBatch train;
  std::error_code ignored;
  std::size_t number = 1;
  do {
    append(train, read_cifar(cifar_part(directory, number)));
  } while (std::filesystem::exists(cifar_part(directory, ++number), ignored));
  const std::filesystem::path test = directory / "test_batch.bin";
  const bool has_test = std::filesystem::exists(test, ignored);
  CifarBatch held_out =
      has_test ? read_cifar(test) : split_off(train, train.labels.size() / kHeldOutShare);
  return {.train = std::make_unique<ImageDataset>(std::move(train)),
          .held_out = std::make_unique<ImageDataset>(std::move(held_out))};
}

}  // namespace

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

}  // namespace kolo::trainer
