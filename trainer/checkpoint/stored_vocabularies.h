#pragma once

#include <filesystem>

#include "trainer/text/text_files.h"

namespace kolo::trainer {

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

}  // namespace kolo::trainer
