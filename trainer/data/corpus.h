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

/// The files that a Corpus of `path` reads, in their order.
/// Errors: KoloError(kData) naming the directory that cannot be read or has no text.
std::vector<std::filesystem::path> corpus_files(const std::filesystem::path& path);

/// Where the last tenth of a text of `size` bytes begins, which is held out.
constexpr std::size_t held_out_begin(std::size_t size) { return size - size / 10; }

}  // namespace kolo::trainer
