#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/saved_state.h"
#include "trainer/models/model.h"
#include "trainer/parameter_set.h"
#include "trainer/text/tokenizer.h"

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

/// Name of the folder with a run's vocabularies, in the folder of the run.
inline constexpr const char* kTokenizerFolder = "tokenizer";

/// The vocabularies that go with the weights at `path`: in the metadata of a safetensors file, or
/// else in its folder, as GPT-2's lie; for a checkpoint, in the folder of its run. None if there
/// are none. Errors: KoloError(kData) for a file that is damaged or cannot be read.
TextFiles vocabularies_of(const std::filesystem::path& path);

/// Those at a place that --tokenizer names: in a folder, in the folder of a run, or those that go
/// with the weights there. None if there are none. Errors: KoloError(kData) as above, and if there
/// is no such file or folder.
TextFiles vocabularies_at(const std::filesystem::path& path);

/// Gives a model the weights at `path`, a safetensors file or a checkpoint, by name: under the
/// names of the model, or in the first of `layouts` that has its first parameter. Those of 16 bits
/// are widened. Errors: KoloError(kData) naming path and tensor, for a weight that is missing, of
/// another shape
///         or of a dtype other than F32, F16 and BF16, and for a tensor that the model does not
///         have; then some weights have been taken. Those of `StoredWeights`.
void import_weights(const std::filesystem::path& path, ParameterSet& parameters,
                    std::span<const WeightLayout> layouts = {});

/// The outcome for weights of which a model has some.
struct SharedWeights {
  std::size_t taken = 0;
  std::vector<std::string> begun_new;  ///< Names that only the model has.
  std::vector<std::string> left;       ///< Names that only the file has.
};

/// Gives a model those weights at `path` that it has, too; its others stay as they are.
/// Errors: KoloError(kData) naming path and tensor, for one of another shape or dtype; for a path
///         that has none of the model's weights. Those of `StoredWeights`.
SharedWeights import_shared_weights(const std::filesystem::path& path, ParameterSet& parameters);

/// "weights: 26 of FILE; new: pooler.weight, …; left: masked.norm.gain, …".
std::string describe(const std::filesystem::path& path, const SharedWeights& weights);

// Each writes one safetensors file, by the names of the model unless told otherwise, in place of an
// older one. The file's metadata has the vocabularies that go with the weights.
// Errors: KoloError(kIo); then an older file is as it was. Those of `StoredWeights`.

/// The weights and buffers of a model.
void export_weights(const ParameterSet& parameters, const std::filesystem::path& file,
                    const TextFiles& vocabularies = {});

/// Those at `path`, a checkpoint or a safetensors file.
void export_weights(const std::filesystem::path& path, const std::filesystem::path& file);

/// The same in the layout of other programs, in float32. Errors: also KoloError(kData) naming the
/// first weight that it has no place for, or that it needs.
void export_weights(const std::filesystem::path& path, const std::filesystem::path& file,
                    const WeightLayout& layout);

/// The means of those at several paths, with the vocabularies of the first. Errors: also
/// KoloError(kData) naming the first path whose weights have other names or shapes.
void export_average(std::span<const std::filesystem::path> paths,
                    const std::filesystem::path& file);

}  // namespace kolo::trainer
