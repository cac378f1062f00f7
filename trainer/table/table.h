#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::trainer {

/// A table of texts with named columns, read from one file.
struct Table {
  std::filesystem::path file;
  std::vector<std::string> columns;            ///< Names of columns; "1", "2", … if the file has
                                               ///< none.
  std::vector<std::vector<std::string>> rows;  ///< Rows, each with one value per column.
  std::vector<std::size_t> lines;              ///< Line at which each row begins, counted from 1.

  /// The index of the column called `name`. Errors: KoloError(kData) naming the file and its
  /// columns.
  std::size_t column(std::string_view name) const;

  /// Throws KoloError(kData) with `what`, naming the file and the line of a row.
  [[noreturn]] void fail(std::size_t row, const std::string& what) const;

  /// A value as a finite number of type T, std::int64_t or double. Errors: KoloError(kData) naming
  /// file, line and column if the value is not such a number.
  template <typename T>
  T number(std::size_t row, std::size_t column) const;
};

/// Throws KoloError(kData) with the message "FILE: line LINE: WHAT".
[[noreturn]] void throw_line_error(const std::filesystem::path& file, std::size_t line,
                                   const std::string& what);

/// How the fields of a text file are delimited.
struct DelimitedFormat {
  char separator = ',';
  /// Whether fields in double quotes may contain separators, line breaks and doubled quotes.
  bool has_quotes = true;
  bool has_header = true;  ///< Whether the first line names the columns.
};

/// The formats of comma-separated values and of tab-separated values, which have no quotes.
inline constexpr DelimitedFormat kCsv{};
inline constexpr DelimitedFormat kTsv{.separator = '\t', .has_quotes = false};

/// Reads a plain or gzip file. Lines end in LF or CR LF; a byte order mark is skipped.
///
/// Errors:  KoloError(kData) naming file and line, if the header is missing, rows have different
///          numbers of fields, or a quote is misplaced or not closed; those of `read_text`.
/// Source:  RFC 4180. Available libraries do not fit: libcsv reports no line numbers, and
///          fast-cpp-csv-parser needs the columns at compile time.
Table read_delimited(const std::filesystem::path& file, const DelimitedFormat& format = kCsv);

/// Reads a plain or gzip file of JSON objects, one object per line. `columns` names the members to
/// read. A number or boolean becomes its text; blank lines are skipped.
///
/// Errors: KoloError(kData) naming file and line, if a line is not a JSON object, or a member is
///         missing or is neither text, number nor boolean; those of `read_text`.
Table read_json_lines(const std::filesystem::path& file, const std::vector<std::string>& columns);

/// Reads the lines of a plain or gzip file into a column "text". Lines end in LF or CR LF; a
/// byte order mark at the beginning is not text. Errors: those of `read_text`.
Table read_lines(const std::filesystem::path& file);

/// Reads lines that begin with a label. Column "label" is the part before the first `separator`,
/// column "text" the part after it. Errors: KoloError(kData) naming file and line if a line has no
/// separator; those of `read_text`.
Table read_labelled_lines(const std::filesystem::path& file, char separator);

/// A table divided into training rows and held-out rows.
struct TableSplit {
  Table train;
  Table held_out;
};

/// Holds out every `every`-th row, so that even a sorted table is divided evenly.
TableSplit hold_out(Table table, std::size_t every);

}  // namespace kolo::trainer
