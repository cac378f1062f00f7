#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/mapped_file.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// A tensor in a safetensors file.
struct StoredTensor {
  std::string name;
  std::string dtype;  ///< "F32", "F64", "BF16", "U8", ...
  Shape shape;
  std::span<const std::byte> bytes;  ///< Row-major, little-endian.
};

/// Texts by name, for people and programs that read the file.
using Metadata = std::map<std::string, std::string>;

/// A safetensors file, mapped for reading. Its tensors are valid as long as it.
///
/// Before:  the file does not change while it is mapped.
/// Threads: any, for reading.
/// Source:  https://github.com/huggingface/safetensors, "Format".
class SafetensorsFile {
 public:
  /// Errors: KoloError(kData) naming file and offset, for a file that cannot be read or breaks a
  ///         rule of the format: offsets that leave the file, overlap or leave gaps, lengths that
  ///         do not follow from shapes, names that come twice, dtypes that are not known.
  explicit SafetensorsFile(const std::filesystem::path& file);

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return std::as_bytes(file_.bytes()); }
  /// In the order of their bytes.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// Null if there is none of this name.
  const StoredTensor* find(std::string_view name) const;
  const Metadata& metadata() const { return metadata_; }

 private:
  std::filesystem::path path_;
  MappedFile file_;
  std::vector<StoredTensor> tensors_;
  Metadata metadata_;
};

/// Bytes of an element; empty for a dtype that is not known.
std::optional<std::size_t> safetensors_element_bytes(std::string_view dtype);

/// Orders tensors so that each is aligned to its elements: the format allows no gaps.
void order_for_alignment(std::vector<StoredTensor>& tensors);

/// The beginning of a file whose data is that of `tensors`, one after the other.
/// Errors: UsageError for a tensor whose bytes do not follow from dtype and shape.
std::string safetensors_header(const std::vector<StoredTensor>& tensors, const Metadata& metadata);

}  // namespace kolo::trainer
