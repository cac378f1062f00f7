#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

struct gzFile_s;

namespace kolo::trainer {

/// A plain or gzip file, read from its beginning; knows its offset, which counts unpacked bytes.
class PackedFile {
 public:
  /// Errors: KoloError(kData) naming the file when it cannot be opened.
  explicit PackedFile(const std::filesystem::path& file);

  /// Returns fewer bytes than requested only at the end of the file.
  /// Errors: KoloError(kData) naming file and offset: unreadable or corrupt.
  std::size_t read(std::span<std::uint8_t> into);

  /// Errors: as `read`, and if the file ends before, within `what`.
  void read_all(std::span<std::uint8_t> into, const std::string& what);

  /// Throws a data error at the offset reached.
  [[noreturn]] void fail(const std::string& what) const;

 private:
  std::filesystem::path file_;
  std::unique_ptr<gzFile_s, int (*)(gzFile_s*)> handle_;
  std::uint64_t offset_ = 0;
};

/// All of a plain or gzip file. Errors: as `PackedFile`.
std::string read_text(const std::filesystem::path& file);

}  // namespace kolo::trainer
