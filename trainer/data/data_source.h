#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

#include "trainer/data/dataset.h"
#include "trainer/data/image_dataset.h"

namespace kolo::trainer {

/// Images with ten classes: a directory with the four files of MNIST, each plain or .gz, where the
/// t10k files are held out; or with data_batch_1.bin and so on of CIFAR-10, where test_batch.bin is
/// held out, or else the last tenth.
struct ImageData {
  std::unique_ptr<ImageDataset> train;
  std::unique_ptr<ImageDataset> held_out;
};
inline constexpr std::size_t kImageClasses = 10;

/// Errors: KoloError(kData) naming file and offset; also when the parts differ in image size.
ImageData load_images(const std::filesystem::path& directory);

/// Text: the first 90 % of the bytes for training, the rest held out.
struct TextData {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> held_out;
};

/// Errors: KoloError(kData) as `Corpus`, and when a part is shorter than one window of `context`
///         bytes and its continuation.
TextData load_text(const std::filesystem::path& path, std::size_t context);

}  // namespace kolo::trainer
