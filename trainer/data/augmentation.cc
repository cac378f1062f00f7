#include "trainer/data/augmentation.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "comm/base/check.h"
#include "trainer/errors.h"

namespace kolo::trainer {
namespace {

/// Number of the first random stream. The streams of initial values, permutations and dropout begin
/// at 0, 2^32 and 2^48.
constexpr std::uint64_t kStream = std::uint64_t{1} << 49;

/// Moves a row: out[i] = row[i + moved] for pixels i, zero beyond the row. `out` may be `row`.
void move_row(const std::uint8_t* row, std::size_t pixels, std::size_t channels,
              std::ptrdiff_t moved, std::uint8_t* out) {
  const std::size_t lost = std::min(pixels, static_cast<std::size_t>(std::abs(moved)));
  const std::size_t kept = (pixels - lost) * channels;
  const std::size_t zeros = lost * channels;
  std::memmove(moved < 0 ? out + zeros : out, moved < 0 ? row : row + zeros, kept);
  std::fill_n(moved < 0 ? out : out + kept, zeros, std::uint8_t{0});
}

void mirror_row(std::uint8_t* row, std::size_t pixels, std::size_t channels) {
  for (std::size_t left = 0, right = pixels - 1; left < right; ++left, --right) {
    std::swap_ranges(row + left * channels, row + (left + 1) * channels, row + right * channels);
  }
}

/// Replaces row y by row y + down, moved by `right`. Each row is read before it is replaced.
void move_image(std::span<std::uint8_t> image, const Shape& shape, std::ptrdiff_t down,
                std::ptrdiff_t right) {
  const auto height = static_cast<std::ptrdiff_t>(shape[0]);
  const std::size_t row_bytes = shape[1] * shape[2];
  const auto row = [&](std::ptrdiff_t y) {
    return image.data() + static_cast<std::size_t>(y) * row_bytes;
  };
  for (std::ptrdiff_t i = 0; i < height; ++i) {
    const std::ptrdiff_t y = down >= 0 ? i : height - 1 - i;
    const std::ptrdiff_t from = y + down;
    if (from < 0 || from >= height) {
      std::fill_n(row(y), row_bytes, std::uint8_t{0});
    } else {
      move_row(row(from), shape[1], shape[2], right, row(y));
    }
  }
}

class AugmentedDataset final : public Dataset {
 public:
  AugmentedDataset(std::unique_ptr<Dataset> images, const Augmentation& augmentation,
                   std::uint64_t seed)
      : images_(std::move(images)), augmentation_(augmentation), seed_(seed) {}

  std::size_t size() const override { return images_->size(); }
  const SampleFormat& format() const override { return images_->format(); }
  void copy(std::size_t index, std::uint64_t epoch, std::span<const TensorSlot> inputs,
            std::span<const TensorSlot> targets) const override {
    images_->copy(index, epoch, inputs, targets);
    const std::uint64_t key = Random(seed_, kStream + epoch).next();
    augment(inputs[0].as<std::uint8_t>(), format().inputs[0].shape, augmentation_,
            Random(key, index));
  }

 private:
  std::unique_ptr<Dataset> images_;
  Augmentation augmentation_;
  std::uint64_t seed_;
};

}  // namespace

Augmentation parse_augmentation(const std::string& text) {
  Augmentation augmentation;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    if (name == "mirror") {
      augmentation.mirrors = true;
    } else if (name == "crop") {
      augmentation.crops = true;
    } else {
      throw_unknown_choice("--augment", name, {"mirror", "crop"});
    }
  }
  return augmentation;
}

std::string name_of(const Augmentation& augmentation) {
  std::string name = augmentation.mirrors ? "mirror" : "";
  if (augmentation.crops) name += name.empty() ? "crop" : ",crop";
  return name;
}

void augment(std::span<std::uint8_t> pixels, const Shape& shape, const Augmentation& augmentation,
             Random random) {
  constexpr auto kMost = static_cast<std::ptrdiff_t>(Augmentation::kMostMoved);
  const bool is_mirrored = random.below(2) == 1;
  const auto down = static_cast<std::ptrdiff_t>(random.below(2 * kMost + 1)) - kMost;
  const auto right = static_cast<std::ptrdiff_t>(random.below(2 * kMost + 1)) - kMost;
  if (augmentation.crops) move_image(pixels, shape, down, right);
  if (!augmentation.mirrors || !is_mirrored) return;
  const std::size_t row_bytes = shape[1] * shape[2];
  for (std::size_t y = 0; y < shape[0]; ++y) {
    mirror_row(pixels.data() + y * row_bytes, shape[1], shape[2]);
  }
}

bool takes_augmentation(const SampleFormat& format) {
  const Field& image = format.inputs.at(0);
  return image.dtype == DType::kUInt8 && image.shape.size() == 3;
}

std::unique_ptr<Dataset> augmented(std::unique_ptr<Dataset> images,
                                   const Augmentation& augmentation, std::uint64_t seed) {
  check(takes_augmentation(images->format()), "images can be augmented, and nothing else");
  return std::make_unique<AugmentedDataset>(std::move(images), augmentation, seed);
}

}  // namespace kolo::trainer
