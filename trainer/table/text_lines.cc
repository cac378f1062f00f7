#include "trainer/table/text_lines.h"

#include <algorithm>
#include <string>
#include <utility>

#include "trainer/data/packed_file.h"

namespace kolo::trainer {

Table read_lines(const std::filesystem::path& file) {
  const std::string text = read_text(file);
  Table table{.file = file, .columns = {"text"}, .rows = {}, .lines = {}};
  for (std::size_t begin = 0; begin < text.size();) {
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

}  // namespace kolo::trainer
