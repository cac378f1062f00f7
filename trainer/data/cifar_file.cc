#include "trainer/data/cifar_file.h"

#include <algorithm>
#include <span>
#include <string>

#include "trainer/data/data_error.h"
#include "trainer/data/mapped_file.h"

namespace kolo::trainer {
namespace {

constexpr std::size_t kPlane = CifarBatch::kSide * CifarBatch::kSide;
constexpr std::size_t kRecord = 1 + CifarBatch::kImageBytes;

}  // namespace

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

}  // namespace kolo::trainer
