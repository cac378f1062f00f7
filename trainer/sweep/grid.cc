#include "trainer/sweep/grid.h"

#include <algorithm>
#include <cctype>
#include <cstddef>

#include <fmt/format.h>

#include "comm/base/error.h"

namespace kolo::trainer {

Dimension parse_dimension(std::string_view text) {
  const std::size_t equals = text.find('=');
  std::string_view name = text.substr(0, equals);
  while (name.starts_with('-')) name.remove_prefix(1);
  Dimension dimension{.option = std::string(name), .values = {""}};
  int depth = 0;
  for (const char c : text.substr(std::min(equals, text.size() - 1) + 1)) {
    if (c == ',' && depth == 0) {
      dimension.values.emplace_back();
      continue;
    }
    depth += (c == '(') - (c == ')');
    dimension.values.back() += c;
  }
  const bool is_empty = std::ranges::any_of(dimension.values, &std::string::empty);
  if (equals == std::string_view::npos || name.empty() || is_empty) {
    throw UsageError(
        fmt::format("--vary {}: it should read OPTION=VALUE,VALUE, as in lr=1e-3,3e-3", text));
  }
  return dimension;
}

std::vector<Combination> all_combinations(const std::vector<Dimension>& dimensions) {
  std::vector<Combination> combinations = {{}};
  for (const Dimension& dimension : dimensions) {
    std::vector<Combination> longer;
    for (const Combination& combination : combinations) {
      if (std::ranges::count(combination, dimension.option, &Setting::option) > 0) {
        throw UsageError(fmt::format("--vary {}: it is named twice", dimension.option));
      }
      for (const std::string& value : dimension.values) {
        longer.push_back(combination);
        longer.back().push_back({dimension.option, value});
      }
    }
    combinations = std::move(longer);
  }
  return combinations;
}

std::string folder_name(const Combination& combination) {
  std::string name;
  for (const auto& [option, value] : combination) {
    name += fmt::format("{}{}={}", name.empty() ? "" : ",", option, value);
  }
  std::ranges::replace_if(
      name,
      [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) == 0 &&
               std::string_view(".,=+-()_").find(c) == std::string_view::npos;
      },
      '_');
  return name;
}

}  // namespace kolo::trainer
