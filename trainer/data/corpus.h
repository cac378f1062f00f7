#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <variant>
#include <vector>

#include "trainer/data/mapped_file.h"

namespace kolo::trainer {

/// A text as bytes: one mapped file, or the text files below a directory in succession.
///
/// A directory contributes *.md *.txt *.h *.cc *.py *.sh and CMakeLists.txt, in the order of their
/// paths. Hidden files, hidden directories and build trees (those with a CMakeCache.txt) are left
/// out.
class Corpus {
 public:
  /// Errors: KoloError(kData) naming the file that cannot be read, or the directory without text.
  explicit Corpus(const std::filesystem::path& path);

  std::span<const std::uint8_t> bytes() const;

 private:
  std::variant<MappedFile, std::vector<std::uint8_t>> text_;
};

}  // namespace kolo::trainer
