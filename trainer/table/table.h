#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::trainer {

/// Rows of text with named columns, from one file.
struct Table {
  std::filesystem::path file;
  std::vector<std::string> columns;            ///< "1", "2", … where the file gives no names.
  std::vector<std::vector<std::string>> rows;  ///< Each with a value for every column.
  std::vector<std::size_t> lines;              ///< In which each row begins, from 1.

  /// Where a column stands. Errors: KoloError(kData) naming the file and the columns it has.
  std::size_t column(std::string_view name) const;

  /// Throws a data error that names file and line of a row.
  [[noreturn]] void fail(std::size_t row, const std::string& what) const;

  /// A value as a number. Errors: KoloError(kData) naming file, line and column unless it is a
  /// finite number of the type (std::int64_t or double).
  template <typename T>
  T number(std::size_t row, std::size_t column) const;
};

/// Throws a data error "FILE: line LINE: WHAT".
[[noreturn]] void throw_line_error(const std::filesystem::path& file, std::size_t line,
                                   const std::string& what);

}  // namespace kolo::trainer
