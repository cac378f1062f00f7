#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <variant>
#include <vector>

struct gzFile_s;

namespace kolo::trainer {

inline bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}
inline bool is_there_plain_or_packed(const std::filesystem::path& file) {
  return is_there(file) || is_there(file.string() + ".gz");
}
/// The path of the file, or of `file`.gz. Errors: KoloError(kData) if neither exists.
std::filesystem::path find_plain_or_packed(const std::filesystem::path& file);

/// A file mapped for reading. The ranks of a node share its pages.
///
/// Before: the file does not shrink while it is mapped.
class MappedFile {
 public:
  /// Errors: KoloError(kData) naming the file if it cannot be opened or mapped, or is not a regular
  ///         file.
  explicit MappedFile(const std::filesystem::path& file);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  std::span<const std::uint8_t> bytes() const {
    return {static_cast<const std::uint8_t*>(address_), size_};
  }

 private:
  void* address_ = nullptr;  // null when the file is empty
  std::size_t size_ = 0;
};

/// A plain or gzip file, read from its beginning. Offsets count unpacked bytes.
class PackedFile {
 public:
  /// Errors: KoloError(kData) naming the file when it cannot be opened.
  explicit PackedFile(const std::filesystem::path& file);

  /// Returns fewer bytes than requested only at the end of the file.
  /// Errors: KoloError(kData) naming file and offset: unreadable or corrupt.
  std::size_t read(std::span<std::uint8_t> into);

  /// Errors: as `read`, and if the file ends too early; the message says that it ends within
  ///         `what`.
  void read_all(std::span<std::uint8_t> into, const std::string& what);

  /// Throws a data error at the current offset.
  [[noreturn]] void fail(const std::string& what) const;

 private:
  std::filesystem::path file_;
  std::unique_ptr<gzFile_s, int (*)(gzFile_s*)> handle_;
  std::uint64_t offset_ = 0;
};

/// The whole contents of a plain or gzip file. Errors: as `PackedFile`.
std::string read_text(const std::filesystem::path& file);

/// A text as bytes: one mapped file, or the concatenated text files below a directory.
///
/// From a directory it reads *.md *.txt *.h *.cc *.py *.sh and CMakeLists.txt, in the order of
/// their paths. It skips hidden files, hidden directories and build trees (directories with a
/// CMakeCache.txt).
class Corpus {
 public:
  /// Errors: KoloError(kData) naming the file that cannot be read, or the directory without text.
  explicit Corpus(const std::filesystem::path& path);

  std::span<const std::uint8_t> bytes() const;

 private:
  std::variant<MappedFile, std::vector<std::uint8_t>> text_;
};

/// The files that a Corpus of `path` reads, in order.
/// Errors: KoloError(kData) naming the directory that cannot be read or has no text.
std::vector<std::filesystem::path> corpus_files(const std::filesystem::path& path);

/// Offset of the held-out last tenth of a text of `size` bytes.
constexpr std::size_t held_out_begin(std::size_t size) { return size - size / 10; }

}  // namespace kolo::trainer
