#include "trainer/data/idx_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "trainer/data/data_error.h"
#include "trainer/data/packed_file.h"

namespace kolo::trainer {
namespace {

constexpr std::uint8_t kUnsignedByte = 8;
constexpr std::size_t kHeaderBytes = 4;
constexpr std::size_t kReadBytes = std::size_t{1} << 20;

std::size_t big_endian(const std::array<std::uint8_t, 4>& bytes) {
  return std::size_t{bytes[0]} << 24 | std::size_t{bytes[1]} << 16 | std::size_t{bytes[2]} << 8 |
         std::size_t{bytes[3]};
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

}  // namespace kolo::trainer
