// Optical Recognition of Handwritten Digits, of the UCI Machine Learning Repository.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/config.h"
#include "trainer/data/dataset_entry.h"
#include "trainer/data/image_dataset.h"
#include "trainer/table/delimited_file.h"

namespace kolo::trainer {
namespace {

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

DatasetEntry optdigits_entry() {
  return {.name = "optdigits",
          .task = "image-classification",
          .help = "a directory with optdigits.tra and optdigits.tes, which is held out",
          .accepts =
              [](const std::filesystem::path& directory) {
                std::error_code ignored;
                return std::filesystem::exists(directory / "optdigits.tra", ignored);
              },
          .load =
              [](const Config& config) {
                return DataSplit{.train = read_digits(config.data / "optdigits.tra"),
                                 .held_out = read_digits(config.data / "optdigits.tes")};
              }};
}

}  // namespace kolo::trainer
