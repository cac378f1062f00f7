#include "trainer/data/data_source.h"

#include <string>

#include "trainer/data/corpus.h"
#include "trainer/data/data_error.h"
#include "trainer/data/text_dataset.h"

namespace kolo::trainer {
namespace {

std::filesystem::path plain_or_gzip(const std::filesystem::path& directory,
                                    const std::string& name) {
  const std::filesystem::path plain = directory / name;
  const std::filesystem::path packed = directory / (name + ".gz");
  std::error_code ignored;
  if (std::filesystem::exists(plain, ignored)) return plain;
  if (std::filesystem::exists(packed, ignored)) return packed;
  throw_data_error(plain, "no such file, and none with .gz");
}

std::unique_ptr<ImageDataset> load_part(const std::filesystem::path& directory,
                                        const std::string& part) {
  const auto images = plain_or_gzip(directory, part + "-images-idx3-ubyte");
  const auto labels = plain_or_gzip(directory, part + "-labels-idx1-ubyte");
  return std::make_unique<ImageDataset>(images, labels, kImageClasses);
}

}  // namespace

ImageData load_images(const std::filesystem::path& directory) {
  ImageData data{.train = load_part(directory, "train"), .held_out = load_part(directory, "t10k")};
  if (data.train->height() != data.held_out->height() ||
      data.train->width() != data.held_out->width()) {
    throw_data_error(directory, 8, "training and held-out images differ in size");
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
                     "text ends too early: its last tenth must hold a context of " +
                         std::to_string(context) + " bytes and one more");
  }
  return {.train = std::make_unique<TextDataset>(corpus, 0, boundary, context),
          .held_out = std::make_unique<TextDataset>(corpus, boundary, size, context)};
}

}  // namespace kolo::trainer
