#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace kolo::trainer {

// Names with their numbers as a JSON object, the layout of GPT-2's vocab.json: {"!": 0, "\"": 1,
// …}. Bytes are written as `to_visible` writes them.

/// `names` by number. Each is there once.
std::string to_numbered_json(const std::vector<std::string>& names);

/// The names by number. Errors: KoloError(kData) naming `file`, with the offset where it is no
/// JSON: a name that is no text of that alphabet, numbers that are not 0, 1, 2 … each once.
std::vector<std::string> from_numbered_json(const std::string& json,
                                            const std::filesystem::path& file);

}  // namespace kolo::trainer
