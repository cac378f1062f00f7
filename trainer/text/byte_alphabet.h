#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::trainer {

// GPT-2 writes bytes as characters that can be seen, in UTF-8: printable ones of Latin-1 as
// themselves, the others, in their order, as U+0100 and the characters that follow it. A space is
// "Ġ", a line feed "Ċ".
// Source: https://github.com/openai/gpt-2, src/encoder.py, bytes_to_unicode.

/// All bytes in the order of their characters, which numbers them in GPT-2's vocabulary.
const std::array<std::uint8_t, 256>& bytes_in_order();

std::string to_visible(std::string_view bytes);

/// Empty if a character stands for no byte.
std::optional<std::string> from_visible(std::string_view characters);

// Names with their numbers as a JSON object, the layout of GPT-2's vocab.json: {"!": 0, "\"": 1,
// …}. Bytes are written as `to_visible` writes them.

/// `names` by number. Each is there once.
std::string to_numbered_json(const std::vector<std::string>& names);

/// The names by number. Errors: KoloError(kData) naming `file`, with the offset where it is no
/// JSON: a name that is no text of that alphabet, numbers that are not 0, 1, 2 … each once.
std::vector<std::string> from_numbered_json(const std::string& json,
                                            const std::filesystem::path& file);

}  // namespace kolo::trainer
