#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/saved_state.h"

namespace kolo::trainer {

/// Prefix of the names of a model's weights in a checkpoint.
inline constexpr const char* kWeights = "weights/";
/// Prefix of the names of its buffers, of which a checkpoint has the means over all ranks.
inline constexpr const char* kBuffers = "buffers/";

/// The weights and buffers of a model in a file, or in a checkpoint of any number of ranks: there
/// those that the job keeps at its end, which are running means where it makes them.
///
/// Threads: any, for reading.
/// Errors:  KoloError(kData) for files that are damaged or incomplete.
class StoredWeights {
 public:
  /// `path` is a safetensors file or the folder of a checkpoint.
  explicit StoredWeights(const std::filesystem::path& path);

  /// By their names in the model; valid as long as this.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// Null if there is none of this name.
  const StoredTensor* find(std::string_view name) const;
  /// Copies one of the tensors; those of 16 bits are widened. Before: `values` are as many.
  /// Errors: KoloError(kData) for a dtype other than F32, F16 and BF16.
  void copy(const StoredTensor& tensor, std::span<float> values) const;

 private:
  std::filesystem::path path_;
  std::optional<SavedState> checkpoint_;
  std::optional<SafetensorsFile> file_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace kolo::trainer
