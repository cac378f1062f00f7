#include "trainer/data/augmentation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/base/error.h"
#include "tests/trainer/small_data.h"
#include "trainer/catalog.h"
#include "trainer/config.h"
#include "trainer/data/data_loader.h"
#include "trainer/data/images.h"

namespace kolo::trainer {
namespace {

const Shape kShape = {9, 7, 3};
constexpr std::size_t kRow = 7 * 3;
constexpr std::size_t kBytes = 9 * kRow;

/// Returns an image of distinct nonzero bytes.
Bytes distinct_image() {
  Bytes image(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) image[i] = static_cast<std::uint8_t>(1 + i);
  return image;
}

/// Returns all channels of the pixel of `image` at a row and a column; zeros outside the image.
std::array<std::uint8_t, 3> pixel_of(const Bytes& image, std::ptrdiff_t y, std::ptrdiff_t x) {
  if (y < 0 || y >= 9 || x < 0 || x >= 7) return {0, 0, 0};
  const std::size_t at = static_cast<std::size_t>(y) * kRow + static_cast<std::size_t>(x) * 3;
  return {image[at], image[at + 1], image[at + 2]};
}

/// Returns `image` moved and optionally mirrored, pixel by pixel.
Bytes changed_by(const Bytes& image, std::ptrdiff_t down, std::ptrdiff_t right, bool is_mirrored) {
  Bytes result;
  for (std::ptrdiff_t y = 0; y < 9; ++y) {
    for (std::ptrdiff_t x = 0; x < 7; ++x) {
      const std::ptrdiff_t column = is_mirrored ? 6 - x : x;
      for (const std::uint8_t byte : pixel_of(image, y + down, column + right))
        result.push_back(byte);
    }
  }
  return result;
}

std::unique_ptr<Dataset> random_images(std::size_t count) {
  Random random(3);
  Bytes pixels(count * kBytes);
  for (std::uint8_t& byte : pixels) byte = static_cast<std::uint8_t>(random.below(256));
  Bytes labels(count);
  for (std::size_t i = 0; i < count; ++i) labels[i] = static_cast<std::uint8_t>(i % 10);
  return std::make_unique<ImageDataset>(kShape, 10, std::move(pixels), std::move(labels));
}

Bytes image_of(const Dataset& data, std::size_t index, std::uint64_t epoch) {
  Bytes pixels(kBytes);
  std::array<std::int32_t, 1> label{};
  const std::vector<TensorSlot> inputs = {pixels};
  const std::vector<TensorSlot> targets = {label};
  data.copy(index, epoch, inputs, targets);
  EXPECT_EQ(label[0], static_cast<std::int32_t>(index % 10));
  return pixels;
}

/// An image that an augmentation may yield.
struct ChangedImage {
  Bytes image;
  bool is_mirrored;
  int times = 0;
};

// All 2 · 81 results must occur, and no others. Of n = 16200 images, each occurs 100 times on
// average, with a deviation below 10, and half are mirrored, with a deviation of sqrt(n) / 2 < 64.
// Six deviations from the mean indicate an error, because the seed is fixed.
TEST(AugmentationTest, MovesAndMirrorsEvenly) {
  constexpr int kImages = 16200;
  const Bytes image = distinct_image();
  std::vector<ChangedImage> results;
  for (const bool is_mirrored : {false, true}) {
    for (std::ptrdiff_t down = -4; down <= 4; ++down) {
      for (std::ptrdiff_t right = -4; right <= 4; ++right) {
        results.push_back({changed_by(image, down, right, is_mirrored), is_mirrored});
      }
    }
  }
  std::ranges::sort(results, {}, &ChangedImage::image);
  for (int i = 0; i < kImages; ++i) {
    Bytes changed = image;
    augment(changed, kShape, {.mirrors = true, .crops = true},
            Random(7, static_cast<std::uint64_t>(i)));
    const auto found = std::ranges::lower_bound(results, changed, {}, &ChangedImage::image);
    ASSERT_TRUE(found != results.end() && found->image == changed) << i;
    ++found->times;
  }
  int mirrored = 0;
  for (const ChangedImage& result : results) {
    EXPECT_NEAR(result.times, kImages / 162, 60);
    if (result.is_mirrored) mirrored += result.times;
  }
  EXPECT_NEAR(mirrored, kImages / 2, 6 * 64);
}

TEST(AugmentationTest, EachChangeCanBeHadAlone) {
  const Bytes image = distinct_image();
  const Bytes mirrored = changed_by(image, 0, 0, true);
  for (std::uint64_t i = 0; i < 50; ++i) {
    Bytes both = image, turned = image, moved = image, same = image;
    augment(both, kShape, {.mirrors = true, .crops = true}, Random(7, i));
    augment(turned, kShape, {.mirrors = true}, Random(7, i));
    augment(moved, kShape, {.crops = true}, Random(7, i));
    augment(same, kShape, {}, Random(7, i));
    EXPECT_EQ(same, image);
    EXPECT_TRUE(turned == image || turned == mirrored);
    // One change does not affect the random numbers of the other.
    EXPECT_EQ(both == moved, turned == image);
  }
}

// An image that is smaller than its move leaves zeros, and no memory outside is accessed.
TEST(AugmentationTest, SmallImagesMayMoveOutOfSight) {
  int emptied = 0;
  for (std::uint64_t i = 0; i < 100; ++i) {
    Bytes memory = {9, 1, 2, 3, 4, 9};
    augment(std::span(memory).subspan(1, 4), {2, 2, 1}, {.crops = true}, Random(1, i));
    EXPECT_EQ(memory.front(), 9);
    EXPECT_EQ(memory.back(), 9);
    if (std::ranges::count(memory, 0) == 4) ++emptied;
  }
  EXPECT_GT(emptied, 0);
}

TEST(AugmentationTest, FollowsSeedIndexAndEpoch) {
  const auto make = [](std::uint64_t seed) {
    return augmented(random_images(40), {.mirrors = true, .crops = true}, seed);
  };
  const auto data = make(5), same = make(5), other = make(6);
  int equal_epochs = 0, equal_seeds = 0;
  for (std::size_t i = 0; i < data->size(); ++i) {
    EXPECT_EQ(image_of(*data, i, 2), image_of(*same, i, 2));
    if (image_of(*data, i, 2) == image_of(*data, i, 3)) ++equal_epochs;
    if (image_of(*data, i, 2) == image_of(*other, i, 2)) ++equal_seeds;
  }
  // One pair in 162 is equal by chance.
  EXPECT_LT(equal_epochs, 5);
  EXPECT_LT(equal_seeds, 5);
}

/// Returns the images of a step of all ranks, by their positions in the epoch.
Bytes step_of(const Dataset& data, std::size_t ranks, std::size_t threads, std::uint64_t epoch,
              std::size_t step) {
  Bytes all;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    DataLoader loader(
        data, {.ranks = ranks, .rank = rank, .batch = 8 / ranks, .seed = 9, .threads = threads});
    const Batch batch = loader.load(epoch, step);
    const auto pixels = batch.inputs[0].as<std::uint8_t>().first(batch.samples * kBytes);
    all.insert(all.end(), pixels.begin(), pixels.end());
  }
  return all;
}

TEST(AugmentationTest, IsTheSameForAnyNumberOfRanksAndThreads) {
  const auto data = augmented(random_images(27), {.mirrors = true, .crops = true}, 4);
  for (const std::uint64_t epoch : {0u, 1u}) {
    for (const std::size_t step : {0u, 3u}) {  // the last one is shorter
      const Bytes wanted = step_of(*data, 1, 0, epoch, step);
      for (const std::size_t ranks : {1u, 2u, 4u}) {
        for (const std::size_t threads : {0u, 1u, 3u}) {
          EXPECT_EQ(step_of(*data, ranks, threads, epoch, step), wanted)
              << ranks << " ranks, " << threads << " threads";
        }
      }
    }
  }
}

TEST(AugmentationTest, ATaskChangesTrainingImagesAndNoOthers) {
  const TemporaryDirectory directory;
  write_small_images(directory, 30, 30);
  const Catalog catalog = built_in_catalog();
  Config config = default_config(catalog, "lenet");
  config.data = directory.path();
  const Task plain = make_task(config, catalog);
  config.augment = "mirror,crop";
  const Task changed = make_task(config, catalog);
  std::size_t differing = 0;
  for (std::size_t i = 0; i < 30; ++i) {
    const auto pixels = [&](const std::unique_ptr<Dataset>& data) {
      return elements_of<std::uint8_t>(*data, i, "image");
    };
    EXPECT_EQ(pixels(changed.data.held_out), pixels(plain.data.held_out));
    if (pixels(changed.data.train) != pixels(plain.data.train)) ++differing;
  }
  EXPECT_GT(differing, 20u);
}

TEST(AugmentationTest, DataWithoutImagesIsRefused) {
  const TemporaryDirectory directory;
  const Catalog catalog = built_in_catalog();
  Config config = default_config(catalog, "gpt");
  config.data = directory.write("text", small_text(3000));
  config.augment = "crop";
  EXPECT_THAT(error_of([&] { make_task(config, catalog); }, ErrorCode::kConfig),
              testing::HasSubstr("--augment crop: changes images"));
}

TEST(AugmentationTest, NamesAreParsedInAnyOrder) {
  EXPECT_TRUE(parse_augmentation("").is_empty());
  EXPECT_EQ(name_of(parse_augmentation("crop,mirror")), "mirror,crop");
  EXPECT_EQ(name_of(parse_augmentation("crop")), "crop");
  EXPECT_THROW(parse_augmentation("mirror,rotate"), UsageError);
}

}  // namespace
}  // namespace kolo::trainer
