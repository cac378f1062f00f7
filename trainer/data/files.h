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
/// Returns `file`, or else `file` with the suffix .gz. Errors: KoloError(kData) if neither exists.
std::filesystem::path find_plain_or_packed(const std::filesystem::path& file);

/// A file that is mapped into memory for reading. The ranks of a node share its pages.
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
  void* address_ = nullptr;  // null if the file is empty
  std::size_t size_ = 0;
};

/// A plain or gzip file, read from its beginning. Offsets count decompressed bytes.
class PackedFile {
 public:
  /// Errors: KoloError(kData) naming the file if it cannot be opened.
  explicit PackedFile(const std::filesystem::path& file);

  /// Reads the next bytes. Returns their number, below into.size() only at the end of the file.
  /// Errors: KoloError(kData) naming file and offset if the file is unreadable or corrupt.
  std::size_t read(std::span<std::uint8_t> into);

  /// Reads exactly into.size() bytes. Errors: those of `read`; KoloError(kData) if the file ends
  /// too early, with a message that it ends within `what`.
  void read_all(std::span<std::uint8_t> into, const std::string& what);

  /// Throws KoloError(kData) with `what`, naming file and current offset.
  [[noreturn]] void fail(const std::string& what) const;

 private:
  std::filesystem::path file_;
  std::unique_ptr<gzFile_s, int (*)(gzFile_s*)> handle_;
  std::uint64_t offset_ = 0;
};

/// Returns the decompressed contents of a plain or gzip file. Errors: those of `PackedFile`.
std::string read_text(const std::filesystem::path& file);

/// The bytes of a text: one mapped file, or the text files below a directory, concatenated.
///
/// Of a directory it takes *.md, *.txt, *.h, *.cc, *.py and *.sh, ordered by path.
/// Hidden files and directories, build trees, tokens, and folders of runs and sweeps are skipped.
class Corpus {
 public:
  /// Errors: KoloError(kData) naming a file that cannot be read, or a directory without text.
  explicit Corpus(const std::filesystem::path& path);

  std::span<const std::uint8_t> bytes() const;

 private:
  std::variant<MappedFile, std::vector<std::uint8_t>> text_;
};

/// The files that `Corpus(path)` reads, in this order.
/// Errors: KoloError(kData) naming a directory that cannot be read or has no text.
std::vector<std::filesystem::path> corpus_files(const std::filesystem::path& path);

/// The offset at which the held-out part of a text of `size` bytes begins: its last tenth.
constexpr std::size_t held_out_begin(std::size_t size) { return size - size / 10; }

}  // namespace kolo::trainer
