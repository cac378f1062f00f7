#pragma once

#include <filesystem>

#include "trainer/table/table.h"

namespace kolo::trainer {

/// How the fields of a text file are told apart.
struct DelimitedFormat {
  char separator = ',';
  /// A field in double quotes may hold separators, line breaks and, doubled, double quotes.
  bool has_quotes = true;
  bool has_header = true;  ///< The first line names the columns.
};

/// Comma-separated values, and tab-separated ones, which know no quotes.
inline constexpr DelimitedFormat kCsv{};
inline constexpr DelimitedFormat kTsv{.separator = '\t', .has_quotes = false};

/// Reads a plain or gzip file. Lines end in LF or CR LF; a byte order mark is passed over.
///
/// Errors:  KoloError(kData) naming file and line: no header, a row with another number of fields
///          than the first line, a quote out of place, quotes that do not end; as `read_text`.
/// Source:  RFC 4180. An own reader: libcsv reports no lines, fast-cpp-csv-parser fixes the columns
/// when compiled.
Table read_delimited(const std::filesystem::path& file, const DelimitedFormat& format = kCsv);

}  // namespace kolo::trainer
