#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace kolo::trainer {

/// The contents of one file of CIFAR-10's binary version.
struct CifarBatch {
  static constexpr std::size_t kSide = 32;
  static constexpr std::size_t kChannels = 3;
  static constexpr std::size_t kClasses = 10;
  static constexpr std::size_t kImageBytes = kSide * kSide * kChannels;

  std::vector<std::uint8_t> pixels;  ///< [images, 32, 32, 3]: the channels of a pixel together.
  std::vector<std::uint8_t> labels;  ///< Below 10.
};

/// Reads records `begin` up to `end`, or to the last one if that comes first, of a file.
///
/// Format: records of 3073 bytes: a label, then planes of red, green and blue, row by row.
/// Errors: KoloError(kData) naming file and offset: missing or unreadable, a size that is not a
///         multiple of a record, a wrong label.
/// Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
CifarBatch read_cifar(const std::filesystem::path& file, std::size_t begin = 0,
                      std::size_t end = static_cast<std::size_t>(-1));

}  // namespace kolo::trainer
