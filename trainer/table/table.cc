#include "trainer/table/table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "trainer/data/files.h"
#include "trainer/errors.h"

namespace kolo::trainer {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// Reads the rows of a text one after the other.
class RowReader {
 public:
  RowReader(const std::filesystem::path& file, std::string_view text, const DelimitedFormat& format)
      : file_(file), text_(text), format_(format) {
    if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
  }

  bool is_at_end() const { return text_.empty(); }
  std::size_t line() const { return line_; }

  std::vector<std::string> row() {
    std::vector<std::string> fields;
    do {
      fields.push_back(format_.has_quotes && text_.starts_with('"') ? quoted() : plain());
    } while (take(format_.separator));
    if (!text_.empty()) take_line_end();
    return fields;
  }

 private:
  bool take(char c) {
    if (!text_.starts_with(c)) return false;
    text_.remove_prefix(1);
    return true;
  }

  void take_line_end() {
    take('\r');
    take('\n');
    ++line_;
  }

  std::size_t end_of_plain() const {
    const char stops[] = {format_.separator, '\n'};
    std::size_t end = text_.find_first_of(std::string_view(stops, 2));
    if (end == std::string_view::npos) end = text_.size();
    const bool is_line_end = end == text_.size() || text_[end] == '\n';
    return is_line_end && end > 0 && text_[end - 1] == '\r' ? end - 1 : end;
  }

  std::string plain() {
    const std::string_view field = text_.substr(0, end_of_plain());
    if (format_.has_quotes && field.find('"') != std::string_view::npos) {
      throw_line_error(file_, line_, "a quote in a field that does not begin with one");
    }
    text_.remove_prefix(field.size());
    return std::string(field);
  }

  std::string quoted() {
    const std::size_t first_line = line_;
    std::string field;
    take('"');
    for (bool is_inside = true; is_inside;) {
      const std::size_t end = text_.find('"');
      if (end == std::string_view::npos) {
        throw_line_error(file_, first_line, "the quotes do not end");
      }
      for (const char c : text_.substr(0, end)) line_ += c == '\n' ? 1 : 0;
      field.append(text_.substr(0, end));
      text_.remove_prefix(end + 1);
      is_inside = take('"');  // two quotes stand for one quote
      if (is_inside) field.push_back('"');
    }
    if (end_of_plain() != 0) throw_line_error(file_, line_, "text after the quotes of a field");
    return field;
  }

  const std::filesystem::path& file_;
  std::string_view text_;
  const DelimitedFormat& format_;
  std::size_t line_ = 1;
};

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

Table read_delimited(const std::filesystem::path& file, const DelimitedFormat& format) {
  const std::string text = read_text(file);
  RowReader reader(file, text, format);
  Table table{.file = file, .columns = {}, .rows = {}, .lines = {}};
  if (format.has_header) {
    if (reader.is_at_end()) throw_line_error(file, 1, "the line that names the columns is missing");
    table.columns = reader.row();
  }
  while (!reader.is_at_end()) {
    const std::size_t line = reader.line();
    std::vector<std::string> row = reader.row();
    while (!format.has_header && table.rows.empty() && table.columns.size() < row.size()) {
      table.columns.push_back(std::to_string(table.columns.size() + 1));
    }
    if (row.size() != table.columns.size()) {
      throw_line_error(file, line,
                       fmt::format("{} fields in place of {}", row.size(), table.columns.size()));
    }
    table.rows.push_back(std::move(row));
    table.lines.push_back(line);
  }
  return table;
}

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

Table read_lines(const std::filesystem::path& file) {
  const std::string text = read_text(file);
  Table table{.file = file, .columns = {"text"}, .rows = {}, .lines = {}};
  for (std::size_t begin = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
       begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    table.rows.push_back({std::move(line)});
    table.lines.push_back(table.rows.size());
    begin = end + 1;
  }
  return table;
}

Table read_labelled_lines(const std::filesystem::path& file, char separator) {
  Table table = read_lines(file);
  table.columns = {"label", "text"};
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const std::string line = std::move(table.rows[i][0]);
    const std::size_t end = line.find(separator);
    if (end == std::string::npos) {
      table.fail(i, separator == '\t' ? "no tab after the label" : "no space after the label");
    }
    table.rows[i] = {line.substr(0, end), line.substr(end + 1)};
  }
  return table;
}

TableSplit hold_out(Table table, std::size_t every) {
  TableSplit split;
  for (Table* part : {&split.train, &split.held_out}) {
    part->file = table.file;
    part->columns = table.columns;
  }
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    Table& part = i % every == every - 1 ? split.held_out : split.train;
    part.rows.push_back(std::move(table.rows[i]));
    part.lines.push_back(table.lines[i]);
  }
  return split;
}

}  // namespace kolo::trainer
