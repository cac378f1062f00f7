#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace kolo {

/// Returns `text` without leading and trailing spaces.
inline std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

/// Returns the name in a line of the form "'NAME': ...", or an empty text for other lines.
inline std::string_view tensor_of(std::string_view line) {
  if (!line.starts_with('\'')) return {};
  const std::size_t end = line.find("': ");
  return end == std::string_view::npos ? std::string_view() : line.substr(1, end - 1);
}

/// Lists the first five names for error texts: "'a', 'b' and 7 more".
inline std::string quoted(std::span<const std::string_view> names) {
  constexpr std::size_t kMost = 5;
  std::string text;
  for (const std::string_view name : names.first(std::min(kMost, names.size()))) {
    text += (text.empty() ? "'" : ", '") + std::string(name) + "'";
  }
  if (names.size() > kMost) text += " and " + std::to_string(names.size() - kMost) + " more";
  return text;
}

}  // namespace kolo
