#pragma once

#include <filesystem>
#include <span>

#include "trainer/models/weight_layout.h"
#include "trainer/parameter_set.h"
#include "trainer/text/text_files.h"

namespace kolo::trainer {

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
