#include "trainer/data/data_source.h"

#include <cstddef>
#include <string>
#include <utility>

#include "trainer/data/corpus.h"
#include "trainer/data/data_error.h"
#include "trainer/data/text_dataset.h"

namespace kolo::trainer {
namespace {

/// One image in ten is held out if CIFAR-10's test images are missing: 2,000 of two batches.
constexpr std::size_t kHeldOutShare = 10;

std::filesystem::path plain_or_gzip(const std::filesystem::path& directory,
                                    const std::string& name) {
  const std::filesystem::path plain = directory / name;
  const std::filesystem::path packed = directory / (name + ".gz");
  std::error_code ignored;
  if (std::filesystem::exists(plain, ignored)) return plain;
  if (std::filesystem::exists(packed, ignored)) return packed;
  throw_data_error(
      plain,
      "no such file, with or without .gz; --data takes a directory with the files of MNIST or "
      "CIFAR-10");
}

std::unique_ptr<ImageDataset> load_part(const std::filesystem::path& directory,
                                        const std::string& part) {
  const auto images = plain_or_gzip(directory, part + "-images-idx3-ubyte");
  const auto labels = plain_or_gzip(directory, part + "-labels-idx1-ubyte");
  return std::make_unique<ImageDataset>(images, labels, kImageClasses);
}

ImageData load_mnist(const std::filesystem::path& directory) {
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

ImageData load_cifar(const std::filesystem::path& directory) {
  CifarBatch train;
  std::error_code ignored;
  for (std::size_t number = 1; std::filesystem::exists(cifar_part(directory, number), ignored);
       ++number) {
    append(train, read_cifar(cifar_part(directory, number)));
  }
  const std::filesystem::path test = directory / "test_batch.bin";
  const bool has_test = std::filesystem::exists(test, ignored);
  CifarBatch held_out =
      has_test ? read_cifar(test) : split_off(train, train.labels.size() / kHeldOutShare);
  return {.train = std::make_unique<ImageDataset>(std::move(train)),
          .held_out = std::make_unique<ImageDataset>(std::move(held_out))};
}

}  // namespace

ImageData load_images(const std::filesystem::path& directory) {
  std::error_code ignored;
  const bool is_cifar = std::filesystem::exists(cifar_part(directory, 1), ignored);
  ImageData data = is_cifar ? load_cifar(directory) : load_mnist(directory);
  if (data.train->height() != data.held_out->height() ||
      data.train->width() != data.held_out->width()) {
    throw_data_error(directory, 8, "training and held-out images have different sizes");
  }
  return data;
}

TextData load_text(const std::filesystem::path& path, std::size_t context) {
  const auto corpus = std::make_shared<const Corpus>(path);
  const std::size_t size = corpus->bytes().size();
  const std::size_t boundary = size - size / 10;
  const std::size_t needed = context + 1;
  if (boundary < needed || size - boundary < needed) {
    throw_data_error(path, size,
                     "the text is too short: its last tenth must hold a context of " +
                         std::to_string(context) + " bytes and one more");
  }
  return {.train = std::make_unique<TextDataset>(corpus, 0, boundary, context),
          .held_out = std::make_unique<TextDataset>(corpus, boundary, size, context)};
}

}  // namespace kolo::trainer
