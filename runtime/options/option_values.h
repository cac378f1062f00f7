#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kolo {

// Functions that parse values of options. They throw KoloError(kConfig) for a text that is not a
// number or is out of range, and UsageError for an unknown choice. Both errors quote the text and
// list the allowed values; the caller adds the option's name.

/// The numbers that an option accepts.
struct OptionRange {
  std::int64_t least = 0;
  std::int64_t most = 0;
  std::string_view unit;  ///< "milliseconds"
};

/// Parses a number: "250" -> 250.
std::int64_t parse_number(const std::string& text, const OptionRange& range);

/// Parses a number with an optional suffix K, M or G (powers of 1024): "4M" -> 4194304.
std::size_t parse_bytes(const std::string& text);
/// Works like `parse_bytes(text)`, for a number from `least` to `most`.
std::size_t parse_bytes(const std::string& text, std::size_t least, std::size_t most);

/// Returns the shortest text that `parse_bytes` reads as `bytes`.
std::string bytes_text(std::size_t bytes);

/// Throws UsageError, which suggests the nearest choice, if `text` is not in `choices`.
void check_choice(const std::string& text, std::span<const std::string> choices);

/// Checks a name or path: at most `most_bytes` bytes, without control characters.
void check_plain_text(const std::string& text, std::size_t most_bytes);

/// Checks for "cpu", "cuda" or "cuda:INDEX".
void check_device_name(const std::string& text);

}  // namespace kolo
