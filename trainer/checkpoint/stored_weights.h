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
/// Prefix of the names of its buffers; a checkpoint stores their means over all ranks.
inline constexpr const char* kBuffers = "buffers/";

/// The weights and buffers of a model in a file or in a checkpoint of any number of ranks. If the
/// job keeps running means of the weights, a checkpoint yields those.
///
/// Threads: any, for reading.
/// Errors:  KoloError(kData) for files that are damaged or incomplete.
class StoredWeights {
 public:
  /// `path` is a safetensors file or the folder of a checkpoint.
  explicit StoredWeights(const std::filesystem::path& path);

  /// Tensors by their names in the model; valid as long as this object.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// Returns null if no tensor has this name.
  const StoredTensor* find(std::string_view name) const;
  /// Copies one of the tensors, widening 16-bit values. Before: `values` has the tensor's size.
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

/// The vocabularies that belong to the weights at `path`: from the metadata of a safetensors file,
/// or else from its folder, as with GPT-2; for a checkpoint, from the folder of its run. Empty if
/// there are none. Errors: KoloError(kData) for a file that is damaged or cannot be read.
TextFiles vocabularies_of(const std::filesystem::path& path);

/// The vocabularies at a path given by --tokenizer: in a folder, in the folder of a run, or those
/// that belong to the weights there. Empty if there are none. Errors: KoloError(kData) as above,
/// and if there is no such file or folder.
TextFiles vocabularies_at(const std::filesystem::path& path);

/// Loads the weights at `path`, a safetensors file or a checkpoint, into a model by name: under the
/// model's names, or those of the first of `layouts` that has its first parameter. 16-bit values
/// are widened.
/// Errors: KoloError(kData) naming path and tensor, for a weight that is missing, of another shape
///         or of a dtype other than F32, F16 and BF16, and for a tensor that the model does not
///         have; some weights may have been loaded by then. Those of `StoredWeights`.
void import_weights(const std::filesystem::path& path, ParameterSet& parameters,
                    std::span<const WeightLayout> layouts = {});

/// The outcome of loading weights that match a model in part.
struct SharedWeights {
  std::size_t taken = 0;
  std::vector<std::string> begun_new;  ///< Names that only the model has.
  std::vector<std::string> left;       ///< Names that only the file has.
};

/// Loads the weights at `path` that the model also has; its other weights stay as they are.
/// Errors: KoloError(kData) naming path and tensor, for one of another shape or dtype; for a path
///         that has none of the model's weights. Those of `StoredWeights`.
SharedWeights import_shared_weights(const std::filesystem::path& path, ParameterSet& parameters);

/// "weights: 26 of FILE; new: pooler.weight, …; left: masked.norm.gain, …".
std::string describe(const std::filesystem::path& path, const SharedWeights& weights);

// Each writes one safetensors file, with the names of the model unless a layout is given, replacing
// an older file. The file's metadata holds the vocabularies that belong to the weights.
// Errors: KoloError(kIo), which leaves an older file unchanged. Those of `StoredWeights`.

/// Writes the weights and buffers of a model.
void export_weights(const ParameterSet& parameters, const std::filesystem::path& file,
                    const TextFiles& vocabularies = {});

/// Writes the weights at `path`, a checkpoint or a safetensors file.
void export_weights(const std::filesystem::path& path, const std::filesystem::path& file);

/// Writes them in the layout of another program, in float32. Errors: also KoloError(kData) naming
/// the first weight that the layout lacks or that the file lacks.
void export_weights(const std::filesystem::path& path, const std::filesystem::path& file,
                    const WeightLayout& layout);

/// Writes the means of the weights at several paths, with the vocabularies of the first. Errors:
/// also KoloError(kData) naming the first path whose weights have other names or shapes.
void export_average(std::span<const std::filesystem::path> paths,
                    const std::filesystem::path& file);

}  // namespace kolo::trainer
