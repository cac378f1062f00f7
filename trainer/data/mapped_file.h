#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace kolo::trainer {

/// A file mapped for reading. The ranks of a node share its pages.
///
/// Before: the file does not shrink while it is mapped.
class MappedFile {
 public:
  /// Errors: KoloError(kData) naming the file when it cannot be opened or mapped, or is no regular
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

}  // namespace kolo::trainer
