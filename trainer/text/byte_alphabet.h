#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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

}  // namespace kolo::trainer
