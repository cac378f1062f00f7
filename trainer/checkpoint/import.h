#pragma once

#include <filesystem>

#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// Gives a model the weights at `path`, a safetensors file or a checkpoint, by name; those of 16
/// bits are widened.
/// Errors: KoloError(kData) naming path and tensor, for a weight that is missing, of another shape
///         or of a dtype other than F32, F16 and BF16, and for a tensor that the model does not
///         have; then some weights have been taken. Those of `StoredWeights`.
void import_weights(const std::filesystem::path& path, ParameterSet& parameters);

}  // namespace kolo::trainer
