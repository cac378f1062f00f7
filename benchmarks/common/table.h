#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace kolo::bench {

/// A column of a printed table. `field` is a field of the rows, or a JSON pointer to a nested value
/// ("/ratio/median").
struct Column {
  std::string field;
  int width = 10;          ///< In characters. Negative: texts are left-aligned.
  int digits = -1;         ///< Digits after the decimal point. -1: as many as the number has.
  std::string title = {};  ///< Empty: `field` is the title.
};

/// The rows of a benchmark. Each row is printed when it is added, and all rows are written to a
/// JSON file at the end. A field that a row lacks is printed as "-". The head is printed before the
/// first row, so that a program which refuses its arguments prints only the error.
class Table {
 public:
  /// The notes and the titles are the head. Only the rank on which `speaks` is true prints.
  Table(bool speaks, const std::vector<std::string>& notes, std::vector<Column> columns);

  void add(nlohmann::json row);
  /// Prints a line below the rows so far.
  void note(const std::string& text);
  /// Writes the rows to the file `path` if this rank prints and `path` is not empty. Errors:
  /// KoloError(kIo) naming the file.
  void write(const std::string& path) const;

 private:
  void print_head();

  bool speaks_;
  std::vector<std::string> head_;  // until it is printed
  std::vector<Column> columns_;
  nlohmann::json rows_ = nlohmann::json::array();
};

template <typename Value>
nlohmann::json or_null(const std::optional<Value>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

}  // namespace kolo::bench
