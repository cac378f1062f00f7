#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace kolo::bench {

/// A column of a table: a field of its rows, or a part of one ("/ratio/median").
struct Column {
  std::string field;
  int width = 10;          ///< Negative: texts are left-aligned.
  int digits = -1;         ///< Digits after the decimal point; -1: as many as the number has.
  std::string title = {};  ///< Empty: the name of the field.
};

/// The rows of a benchmark: printed as they come, with some fields as columns, and written to a
/// file at the end. A field that a row lacks is printed as "-".
class Table {
 public:
  /// Prints the notes and the titles if this rank prints.
  Table(bool speaks, const std::vector<std::string>& notes, std::vector<Column> columns);

  void add(nlohmann::json row);
  /// Prints a line about the rows above.
  void note(const std::string& text) const;
  /// Writes the rows to the file `path` unless it is empty, if this rank prints.
  /// Errors: KoloError(kIo) naming the file.
  void write(const std::string& path) const;

 private:
  bool speaks_;
  std::vector<Column> columns_;
  nlohmann::json rows_ = nlohmann::json::array();
};

template <typename Value>
nlohmann::json or_null(const std::optional<Value>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

}  // namespace kolo::bench
