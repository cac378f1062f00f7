#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kolo {

// Parses values of options. A text that is not a number, or a number out of range, is a
// KoloError(kConfig); an unknown choice is a UsageError. Both quote the text and say what is
// allowed; the caller adds the option's name.

/// The numbers that an option accepts.
struct OptionRange {
  std::int64_t least = 0;
  std::int64_t most = 0;
  std::string_view unit;  ///< "milliseconds"
};

/// "250" -> 250.
std::int64_t parse_number(const std::string& text, const OptionRange& range);

/// "4M" -> 4194304: a number with an optional suffix K, M or G (powers of 1024).
std::size_t parse_bytes(const std::string& text);
/// As `parse_bytes(text)`, for a number from `least` to `most`.
std::size_t parse_bytes(const std::string& text, std::size_t least, std::size_t most);

/// The shortest text that `parse_bytes` reads as `bytes`.
std::string bytes_text(std::size_t bytes);

/// Errors: UsageError, which suggests the nearest choice, if `text` is none of them.
void check_choice(const std::string& text, std::span<const std::string> choices);

/// Checks a name or path: at most `most_bytes` bytes, without control characters.
void check_plain_text(const std::string& text, std::size_t most_bytes);

/// Checks for "cpu", "cuda" or "cuda:INDEX".
void check_device_name(const std::string& text);

}  // namespace kolo
