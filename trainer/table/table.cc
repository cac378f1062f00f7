#include "trainer/table/table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainer/data/data_error.h"

namespace kolo::trainer {

std::size_t Table::column(std::string_view name) const {
  const auto found = std::find(columns.begin(), columns.end(), name);
  if (found == columns.end()) {
    throw_data_error(file, fmt::format("there is no column '{}'; the columns are {}", name,
                                       fmt::join(columns, ", ")));
  }
  return static_cast<std::size_t>(found - columns.begin());
}

void Table::fail(std::size_t row, const std::string& what) const {
  throw_line_error(file, lines.at(row), what);
}

template <typename T>
T Table::number(std::size_t row, std::size_t column) const {
  const std::string& text = rows.at(row).at(column);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  bool is_number = error == std::errc() && end == text.data() + text.size();
  if constexpr (std::is_floating_point_v<T>) is_number = is_number && std::isfinite(value);
  if (!is_number) {
    fail(row, fmt::format("'{}' in column {} is not {}", text, columns.at(column),
                          std::is_floating_point_v<T> ? "a number" : "a whole number"));
  }
  return value;
}

template std::int64_t Table::number<std::int64_t>(std::size_t, std::size_t) const;
template double Table::number<double>(std::size_t, std::size_t) const;

void throw_line_error(const std::filesystem::path& file, std::size_t line,
                      const std::string& what) {
  throw_data_error(file, fmt::format("line {}: {}", line, what));
}

}  // namespace kolo::trainer
