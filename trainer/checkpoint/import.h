#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "trainer/models/weight_layout.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {

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

}  // namespace kolo::trainer
