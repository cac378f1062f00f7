#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/unique_handle.h"
#include "trainer/data/files.h"
#include "trainer/tensor.h"

struct XXH3_state_s;

namespace kolo::trainer {

/// A tensor in a safetensors file.
struct StoredTensor {
  std::string name;
  std::string dtype;  ///< Dtype in the spelling of the format: "F32", "F64", "BF16", "U8", …
  Shape shape;
  std::span<const std::byte> bytes;  ///< The elements, row-major and little-endian; the memory
                                     ///< belongs to the file or the caller.
};

/// The metadata of a safetensors file: texts by name.
using Metadata = std::map<std::string, std::string>;

/// A safetensors file, mapped for reading. Its tensors stay valid as long as this object.
///
/// Before:  the file does not change while it is mapped.
/// Threads: any, for reading.
/// Source:  https://github.com/huggingface/safetensors, "Format".
class SafetensorsFile {
 public:
  /// Errors: KoloError(kData) naming file and offset, for a file that cannot be read or breaks a
  ///         rule of the format: offsets that exceed the file, overlap or leave gaps; lengths that
  ///         do not match shapes; duplicate names; unknown dtypes.
  explicit SafetensorsFile(const std::filesystem::path& file);

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return std::as_bytes(file_.bytes()); }
  /// The tensors in the order of their data in the file.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// Returns the tensor of this name, or null if there is none.
  const StoredTensor* find(std::string_view name) const;
  const Metadata& metadata() const { return metadata_; }

 private:
  std::filesystem::path path_;
  MappedFile file_;
  std::vector<StoredTensor> tensors_;
  Metadata metadata_;
};

/// The bytes per element of a dtype in safetensors spelling; empty for an unknown dtype.
std::optional<std::size_t> safetensors_element_bytes(std::string_view dtype);

/// Sorts tensors so that each is aligned to its element size although the format allows no gaps.
void order_for_alignment(std::vector<StoredTensor>& tensors);

/// The header of a file whose data section is the bytes of `tensors` in this order.
/// Errors: UsageError for a tensor whose bytes do not match its dtype and shape.
std::string safetensors_header(const std::vector<StoredTensor>& tensors, const Metadata& metadata);

/// The length and checksum of a file, by which a later reader detects damage.
struct FileSum {
  std::uint64_t bytes = 0;
  std::uint64_t xxh3 = 0;  ///< XXH3-64 of all bytes.
  friend bool operator==(const FileSum&, const FileSum&) = default;
};

FileSum sum_of(std::span<const std::byte> bytes);

/// A new file that survives a crash of the machine once `finish` has returned and the file's folder
/// is synchronised with `sync_folder`.
///
/// Threads: one. Errors: KoloError(kIo) naming file and cause; the file then stays incomplete.
class DurableFile {
 public:
  /// Creates the file or truncates an existing one.
  explicit DurableFile(std::filesystem::path file);
  ~DurableFile();

  void write(std::span<const std::byte> bytes);
  /// Blocks until the storage device has all bytes, and closes the file.
  FileSum finish();

 private:
  std::filesystem::path path_;
  FileDescriptor descriptor_;
  std::uint64_t bytes_ = 0;
  struct FreeHash {
    void operator()(XXH3_state_s* state) const noexcept;
  };
  std::unique_ptr<XXH3_state_s, FreeHash> hash_;
};

/// Blocks until the folder's directory entries are on the storage device. Errors: KoloError(kIo).
void sync_folder(const std::filesystem::path& folder);

/// Renames a file or folder and synchronises the folder that holds it. Errors: KoloError(kIo)
/// naming both paths and the cause.
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);

/// Writes a safetensors file through a DurableFile.
FileSum write_safetensors(const std::filesystem::path& file, std::vector<StoredTensor> tensors,
                          const Metadata& metadata);

/// Throws KoloError(kIo) with the message "cannot VERB PATH: CAUSE".
[[noreturn]] void throw_io_error(const std::string& verb, const std::filesystem::path& path,
                                 const std::string& cause);

}  // namespace kolo::trainer
