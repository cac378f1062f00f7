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
  std::vector<std::string> columns;            ///< "1", "2", … if the file gives no names.
  std::vector<std::vector<std::string>> rows;  ///< Each with a value per column.
  std::vector<std::size_t> lines;              ///< Line at which each row begins, from 1.

  /// Index of a column. Errors: KoloError(kData) naming the file and its columns.
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

/// How the fields of a text file are delimited.
struct DelimitedFormat {
  char separator = ',';
  /// A field in double quotes may hold separators, line breaks and, doubled, double quotes.
  bool has_quotes = true;
  bool has_header = true;  ///< The first line names the columns.
};

/// Comma-separated values, and tab-separated values, which have no quotes.
inline constexpr DelimitedFormat kCsv{};
inline constexpr DelimitedFormat kTsv{.separator = '\t', .has_quotes = false};

/// Reads a plain or gzip file. Lines end in LF or CR LF; a byte order mark is skipped.
///
/// Errors:  KoloError(kData) naming file and line: no header, a row with another number of fields
///          than the first line, a misplaced quote, an unterminated quote; as `read_text`.
/// Source:  RFC 4180. Reader of our own, because libcsv reports no lines and fast-cpp-csv-parser
///          fixes the columns at compile time.
Table read_delimited(const std::filesystem::path& file, const DelimitedFormat& format = kCsv);

/// Reads the named members of the JSON objects of a plain or gzip file, one object per line. A
/// number or boolean becomes its text; blank lines are skipped.
///
/// Errors: KoloError(kData) naming file and line: not a JSON object, a member that is missing or is
///         neither text, number nor boolean; as `read_text`.
Table read_json_lines(const std::filesystem::path& file, const std::vector<std::string>& columns);

/// Reads the lines of a plain or gzip file, which end in LF or CR LF, as column "text".
/// Errors: KoloError(kData) as `read_text`.
Table read_lines(const std::filesystem::path& file);

/// Reads lines that begin with a label. Column "label" is the part before the first `separator`,
/// and "text" the rest. Errors: KoloError(kData) naming file and line if there is no separator; as
/// `read_text`.
Table read_labelled_lines(const std::filesystem::path& file, char separator);

/// The training rows and the held-out rows.
struct TableSplit {
  Table train;
  Table held_out;
};

/// Holds out every `every`-th row, so that a table in any order is split evenly.
TableSplit hold_out(Table table, std::size_t every);

}  // namespace kolo::trainer
