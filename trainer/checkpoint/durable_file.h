#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/base/unique_handle.h"
#include "trainer/checkpoint/safetensors.h"

struct XXH3_state_s;

namespace kolo::trainer {

/// What tells whether a file still holds what was written to it.
struct FileSum {
  std::uint64_t bytes = 0;
  std::uint64_t xxh3 = 0;  ///< XXH3-64 of all bytes.
  friend bool operator==(const FileSum&, const FileSum&) = default;
};

FileSum sum_of(std::span<const std::byte> bytes);

/// A new file that survives a crash of the machine once `finish` has returned and its folder is
/// synchronised (`sync_folder`).
///
/// Threads: one. Errors: KoloError(kIo) naming file and cause; nothing is removed then.
class DurableFile {
 public:
  /// Creates the file, or replaces what it holds.
  explicit DurableFile(std::filesystem::path file);
  ~DurableFile();

  void write(std::span<const std::byte> bytes);
  /// Waits until the device has all bytes, and closes the file.
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

/// Waits until the device knows which files the folder holds. Errors: KoloError(kIo).
void sync_folder(const std::filesystem::path& folder);

/// Errors: KoloError(kIo) naming both and the cause.
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);

/// Writes a safetensors file through a DurableFile.
FileSum write_safetensors(const std::filesystem::path& file, std::vector<StoredTensor> tensors,
                          const Metadata& metadata);

/// Throws KoloError(kIo): "cannot VERB PATH: CAUSE".
[[noreturn]] void throw_io_error(const std::string& verb, const std::filesystem::path& path,
                                 const std::string& cause);

}  // namespace kolo::trainer
