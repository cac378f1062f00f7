// A data set of images of 2 × 2 pixels, bright in the row of their class. The file holds the number
// of images.

#include <cstdint>
#include <fstream>
#include <memory>
#include <span>

#include <kolo/trainer/config.h>
#include <kolo/trainer/data/dataset.h>
#include <kolo/trainer/random.h>

namespace {

using namespace kolo::trainer;

class BrightRows final : public Dataset {
 public:
  BrightRows(std::size_t size, std::uint64_t seed) : size_(size), seed_(seed) {}

  std::size_t size() const override { return size_; }
  const SampleFormat& format() const override { return format_; }
  void copy(std::size_t index, std::uint64_t, std::span<const TensorSlot> inputs,
            std::span<const TensorSlot> targets) const override {
    Random random(seed_, index);
    const auto label = static_cast<std::int32_t>(random.below(2));
    targets[0].as<std::int32_t>()[0] = label;
    const auto pixels = inputs[0].as<std::uint8_t>();
    for (std::size_t i = 0; i < 4; ++i) {
      const bool is_bright = static_cast<std::int32_t>(i / 2) == label;
      pixels[i] = static_cast<std::uint8_t>((is_bright ? 150 : 0) + random.below(100));
    }
  }

 private:
  std::size_t size_;
  std::uint64_t seed_;
  SampleFormat format_{.inputs = {{.name = "image",
                                   .dtype = kolo::DType::kUInt8,
                                   .shape = {2, 2, 1},
                                   .mean = 125.0,
                                   .deviation = 75.0}},
                       .targets = {{.name = "label", .dtype = kolo::DType::kInt32, .values = 2}}};
};

}  // namespace

DatasetEntry bright_rows() {
  return {.name = "bright-rows",
          .task = "image-classification",
          .help = "a file NAME.rows with a number of images",
          .accepts = [](const auto& path) { return path.extension() == ".rows"; },
          .load = [](const Config& config) -> DataSplit {
            std::size_t size = 0;
            std::ifstream(config.data) >> size;
            return {.train = std::make_unique<BrightRows>(size, 1),
                    .held_out = std::make_unique<BrightRows>(size / 4, 2)};
          }};
}
