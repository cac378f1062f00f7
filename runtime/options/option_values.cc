#include "runtime/options/option_values.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "comm/base/error.h"
#include "comm/base/nearest_name.h"

namespace kolo {
namespace {

[[noreturn]] void fail(std::string what) {
  throw KoloError({.code = ErrorCode::kConfig, .what = std::move(what)});
}

constexpr std::string_view kSuffixes = "KMG";

}  // namespace

std::int64_t parse_number(const std::string& text, const OptionRange& range) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && parsed == end && value >= range.least && value <= range.most) {
    return value;
  }
  fail(fmt::format("'{}' is not a number of {} from {} to {}", text, range.unit, range.least,
                   range.most));
}

std::size_t parse_bytes(const std::string& text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, value);
  unsigned shift = 0;
  if (parsed + 1 == end) {
    const auto suffix = static_cast<char>(std::toupper(static_cast<unsigned char>(*parsed)));
    const std::size_t power = kSuffixes.find(suffix);
    if (power != std::string_view::npos) shift = 10 * (static_cast<unsigned>(power) + 1);
  }
  const bool is_size = error != std::errc::invalid_argument && (parsed == end || shift > 0);
  if (!is_size) {
    fail(fmt::format("'{}' is not a number of bytes such as 65536, 64K, 4M or 1G", text));
  }
  if (error != std::errc() || value < 0 ||
      value > std::numeric_limits<std::int64_t>::max() >> shift) {
    fail(fmt::format("'{}' is negative or too large for a number of bytes", text));
  }
  return static_cast<std::size_t>(value) << shift;
}

std::size_t parse_bytes(const std::string& text, std::size_t least, std::size_t most) {
  const std::size_t bytes = parse_bytes(text);
  if (bytes >= least && bytes <= most) return bytes;
  fail(fmt::format("'{}' is not a number of bytes from {} to {}", text, bytes_text(least),
                   bytes_text(most)));
}

std::string bytes_text(std::size_t bytes) {
  std::string suffix;
  for (const char each : kSuffixes) {
    if (bytes == 0 || bytes % 1024 != 0) break;
    bytes /= 1024;
    suffix = each;
  }
  return std::to_string(bytes) + suffix;
}

void check_choice(const std::string& text, std::span<const std::string> choices) {
  if (std::ranges::find(choices, text) != choices.end()) return;
  throw UsageError(describe_unknown(text, choices));
}

void check_plain_text(const std::string& text, std::size_t most_bytes) {
  const auto is_control = [](unsigned char c) { return std::iscntrl(c) != 0; };
  if (std::ranges::any_of(text, is_control)) fail(fmt::format("'{}' has control characters", text));
  if (text.size() > most_bytes) {
    fail(fmt::format("'{}' is longer than {} bytes", text, most_bytes));
  }
}

void check_device_name(const std::string& text) {
  constexpr std::string_view kIndexed = "cuda:";
  constexpr OptionRange kIndices{.least = 0, .most = 65535, .unit = "a device"};
  static const std::array<std::string, 3> names = {"cpu", "cuda", "cuda:INDEX"};
  if (text == names[0] || text == names[1]) return;
  if (!text.starts_with(kIndexed)) throw UsageError(describe_unknown(text, names));
  try {
    parse_number(text.substr(kIndexed.size()), kIndices);
  } catch (const KoloError&) {
    fail(fmt::format("'{}' is not cuda:INDEX with an INDEX from {} to {}", text, kIndices.least,
                     kIndices.most));
  }
}

}  // namespace kolo
