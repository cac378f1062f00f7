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
/// Prefix of the names of a model's buffers in a checkpoint, which stores means over all ranks.
inline constexpr const char* kBuffers = "buffers/";

/// The weights and buffers of a model, read from a safetensors file or from a checkpoint of any
/// number of ranks. If a job has running means of its weights, its checkpoints yield these means.
///
/// Threads: any, for reading.
/// Errors:  KoloError(kData) for files that are damaged or incomplete.
class StoredWeights {
 public:
  /// `path` is a safetensors file or the folder of a checkpoint.
  explicit StoredWeights(const std::filesystem::path& path);

  /// The tensors under their names in the file; valid as long as this object.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// Returns the tensor of this name, or null if there is none.
  const StoredTensor* find(std::string_view name) const;
  /// Copies the values of `tensor` to `values`, widening 16-bit values. Before: `values` has the
  /// tensor's size. Errors: KoloError(kData) for a dtype other than F32, F16 and BF16.
  void copy(const StoredTensor& tensor, std::span<float> values) const;

 private:
  std::filesystem::path path_;
  std::optional<SavedState> checkpoint_;
  std::optional<SafetensorsFile> file_;
  std::vector<StoredTensor> tensors_;
};

/// Name of the folder in a run's folder that holds the run's vocabularies.
inline constexpr const char* kTokenizerFolder = "tokenizer";

/// Finds the vocabularies that belong to the weights at `path`. Those of a checkpoint are in its
/// run's folder; those of a safetensors file are in its metadata or, as with GPT-2, in its folder.
/// Empty if there are none. Errors: KoloError(kData) for a file that is damaged or cannot be read.
TextFiles vocabularies_of(const std::filesystem::path& path);

/// Finds the vocabularies at a path given by --tokenizer: a folder with vocabularies, the folder of
/// a run, or weights (see `vocabularies_of`). Empty if there are none. Errors: KoloError(kData) for
/// a file that is damaged, missing or cannot be read.
TextFiles vocabularies_at(const std::filesystem::path& path);

/// Loads the weights at `path`, a safetensors file or a checkpoint, into a model by name. The names
/// are those of the model or, if the model's first parameter is not found under its own name, those
/// of the first of `layouts` under which it is found. 16-bit values are widened.
/// Errors: KoloError(kData) naming path and tensor, for a weight that is missing, of another shape,
///         or of a dtype other than F32, F16 and BF16, and for a tensor that the model does not
///         have; some weights may be loaded by then. Also those of `StoredWeights`.
void import_weights(const std::filesystem::path& path, ParameterSet& parameters,
                    std::span<const WeightLayout> layouts = {});

/// The result of loading a file that shares only a part of its names with the model.
struct SharedWeights {
  std::size_t taken = 0;
  std::vector<std::string> begun_new;  ///< Names that only the model has.
  std::vector<std::string> left;       ///< Names that only the file has; they are not loaded.
};

/// Loads the weights at `path` whose names the model has; the model's other weights do not change.
/// Errors: KoloError(kData) naming path and tensor, for a tensor of another shape or dtype;
///         KoloError(kData) if the path has none of the model's weights; those of `StoredWeights`.
SharedWeights import_shared_weights(const std::filesystem::path& path, ParameterSet& parameters);

/// The result in one line: "weights: 26 of FILE; new: pooler.weight, …; left: masked.norm.gain, …".
std::string describe(const std::filesystem::path& path, const SharedWeights& weights);

// Each of these functions writes one safetensors file, which replaces an older file. Tensors have
// the model's names unless a layout is given. The metadata holds the vocabularies of the weights.
// Errors: KoloError(kIo), after which an older file is unchanged; those of `StoredWeights`.

/// Writes the weights and buffers of a model.
void export_weights(const ParameterSet& parameters, const std::filesystem::path& file,
                    const TextFiles& vocabularies = {});

/// Writes the weights at `path`, a checkpoint or a safetensors file.
void export_weights(const std::filesystem::path& path, const std::filesystem::path& file);

/// Writes the weights at `path` in the layout of another program, in float32. Errors: also
/// KoloError(kData) naming a weight that the layout lacks or that `path` lacks.
void export_weights(const std::filesystem::path& path, const std::filesystem::path& file,
                    const WeightLayout& layout);

/// Writes the means of the weights at `paths`, with the vocabularies of the first path. Errors:
/// also KoloError(kData) naming the first path whose weights have other names or shapes.
void export_average(std::span<const std::filesystem::path> paths,
                    const std::filesystem::path& file);

}  // namespace kolo::trainer
