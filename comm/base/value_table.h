#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

// Functions for tables with one row per value of an enumeration, in order. Each row has fields
// `value` and `names`: the first name is printed, all names are accepted.

namespace kolo {

/// Whether the index of every row equals its value, as the functions below require.
template <const auto& kRows>
constexpr bool is_in_order() {
  std::size_t place = 0;
  for (const auto& row : kRows) {
    if (static_cast<std::size_t>(row.value) != place++) return false;
  }
  return true;
}

/// A predicate that is true for every value.
template <typename Value>
constexpr bool is_value(Value) {
  return true;
}

/// The values for which `kIsWanted` is true, for loops.
template <const auto& kRows, auto kIsWanted>
constexpr auto values_where() {
  constexpr std::size_t kCount = [] {
    std::size_t count = 0;
    for (const auto& row : kRows) count += kIsWanted(row.value) ? 1 : 0;
    return count;
  }();
  std::array<decltype(kRows[0].value), kCount> values{};
  std::size_t place = 0;
  for (const auto& row : kRows) {
    if (kIsWanted(row.value)) values[place++] = row.value;
  }
  return values;
}

/// Returns the printed name of `value`, or "unknown" if it is not in the table.
template <const auto& kRows, typename Value>
constexpr std::string_view name_of(Value value) {
  const auto place = static_cast<std::size_t>(value);
  return place < std::size(kRows) ? kRows[place].names[0] : "unknown";
}

/// Returns the value that has the name `text`, or an empty value if there is none.
template <const auto& kRows>
constexpr auto value_named(std::string_view text) -> std::optional<decltype(kRows[0].value)> {
  for (const auto& row : kRows) {
    for (const std::string_view name : row.names) {
      if (name == text && !text.empty()) return row.value;
    }
  }
  return std::nullopt;
}

}  // namespace kolo
