#include "benchmarks/common/table.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "comm/base/output_file.h"

namespace kolo::bench {
namespace {

std::string cell(const Column& column, const std::string& text) {
  return column.width < 0 ? fmt::format(" {:<{}}", text, -column.width)
                          : fmt::format(" {:>{}}", text, column.width);
}

std::string text_of(const Column& column, const nlohmann::json& row) {
  const std::string& field = column.field;
  const nlohmann::json::json_pointer place(field.starts_with('/') ? field : "/" + field);
  if (!row.contains(place) || row.at(place).is_null()) return "-";
  const nlohmann::json& value = row.at(place);
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float() && column.digits >= 0) {
    return fmt::format("{:.{}f}", value.get<double>(), column.digits);
  }
  return value.dump();
}

}  // namespace

Table::Table(bool speaks, const std::vector<std::string>& notes, std::vector<Column> columns)
    : speaks_(speaks), head_(notes), columns_(std::move(columns)) {
  std::string titles;
  for (const Column& column : columns_) {
    titles += cell(column, column.title.empty() ? column.field : column.title);
  }
  if (!titles.empty()) head_.push_back(titles.substr(1));
}

void Table::print_head() {
  for (const std::string& line : head_) fmt::print("# {}\n", line);
  head_.clear();
}

void Table::add(nlohmann::json row) {
  if (!speaks_) return;
  print_head();
  std::string line = " ";
  for (const Column& column : columns_) line += cell(column, text_of(column, row));
  fmt::print("{}\n", line);
  std::fflush(stdout);
  rows_.push_back(std::move(row));
}

void Table::note(const std::string& text) {
  if (!speaks_) return;
  print_head();
  fmt::print("# {}\n", text);
}

void Table::write(const std::string& path) const {
  if (speaks_ && !path.empty()) write_file(path, rows_.dump(2) + '\n');
}

}  // namespace kolo::bench
