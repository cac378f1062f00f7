#pragma once

#include <filesystem>

#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// Prefix of the names of a model's weights in a checkpoint.
inline constexpr const char* kWeights = "weights/";

/// Writes the weights of a model to a safetensors file, by name, in place of an older one.
/// Errors: KoloError(kIo); then an older file is as it was.
void export_weights(const ParameterSet& parameters, const std::filesystem::path& file);

/// The same from a checkpoint of any number of ranks: the weights that a job keeps at its end,
/// which are running means where it made them. Errors: also KoloError(kData) for a checkpoint that
/// is damaged or incomplete.
void export_checkpoint(const std::filesystem::path& checkpoint, const std::filesystem::path& file);

}  // namespace kolo::trainer
