#pragma once

#include <filesystem>

#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// Gives a model the weights of a safetensors file, by name; those of 16 bits are widened.
/// Errors: KoloError(kData) naming file and tensor, for a weight that is missing, of another shape
///         or of a dtype other than F32, F16 and BF16, and for a tensor that the model does not
///         have; then some weights have been taken.
void import_weights(const std::filesystem::path& file, ParameterSet& parameters);

}  // namespace kolo::trainer
