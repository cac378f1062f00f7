#include "trainer/table/json_lines.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainer/data/packed_file.h"

namespace kolo::trainer {
namespace {

nlohmann::json parse_object(const std::filesystem::path& file, std::size_t line,
                            std::string_view text) {
  try {
    nlohmann::json object = nlohmann::json::parse(text);
    if (!object.is_object()) throw_line_error(file, line, "this is not a JSON object");
    return object;
  } catch (const nlohmann::json::parse_error& error) {
    throw_line_error(file, line, fmt::format("this is not JSON, at character {}", error.byte));
  } catch (const nlohmann::json::exception& error) {  // such as a number that is too large
    throw_line_error(file, line, error.what());
  }
}

std::string text_of(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

Table read_json_lines(const std::filesystem::path& file, const std::vector<std::string>& columns) {
  const std::string text = read_text(file);
  Table table{.file = file, .columns = columns, .rows = {}, .lines = {}};
  std::size_t line = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view content = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    ++line;
    if (content.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const nlohmann::json object = parse_object(file, line, content);
    std::vector<std::string> row;
    for (const std::string& column : columns) {
      const auto member = object.find(column);
      if (member == object.end() || !member->is_primitive() || member->is_null()) {
        throw_line_error(file, line, fmt::format("the text or number '{}' is missing", column));
      }
      row.push_back(text_of(*member));
    }
    table.rows.push_back(std::move(row));
    table.lines.push_back(line);
  }
  return table;
}

}  // namespace kolo::trainer
