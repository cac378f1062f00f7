#include "comm/base/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace kolo {
namespace {

/// Maximum edit distance of a misspelled name.
constexpr std::size_t kMostMistakes = 2;

/// The Levenshtein distance, computed row by row.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row.back();
}

}  // namespace

std::optional<std::string> nearest_name(std::string_view text, std::span<const std::string> names) {
  if (text.empty() || names.empty()) return std::nullopt;
  const auto mistakes = [&](const std::string& name) {
    return name.starts_with(text) ? 0 : edit_distance(text, name);
  };
  const auto nearest = std::ranges::min_element(names, {}, mistakes);
  const std::size_t count = mistakes(*nearest);
  // Rejects an edit distance as large as the name: such texts have no letter in common.
  if (count > kMostMistakes || count >= nearest->size()) return std::nullopt;
  return *nearest;
}

std::string describe_unknown(std::string_view text, std::span<const std::string> names) {
  std::string known;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) known += i + 1 == names.size() ? " or " : ", ";
    known += names[i];
  }
  const auto nearest = nearest_name(text, names);
  return fmt::format("'{}' is not {}{}", text, known,
                     nearest ? fmt::format("; did you mean {}?", *nearest) : std::string());
}

}  // namespace kolo
