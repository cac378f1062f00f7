#include "trainer/table/delimited_file.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainer/data/packed_file.h"

namespace kolo::trainer {
namespace {

/// Takes rows off the front of a text.
class RowReader {
 public:
  RowReader(const std::filesystem::path& file, std::string_view text, const DelimitedFormat& format)
      : file_(file), text_(text), format_(format) {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
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
      is_inside = take('"');  // two quotes stand for one
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

}  // namespace

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

}  // namespace kolo::trainer
