#pragma once

#include <filesystem>

#include "trainer/table/table.h"

namespace kolo::trainer {

/// Reads the lines of a plain or gzip file, which end in LF or CR LF, as column "text".
/// Errors: KoloError(kData) as `read_text`.
Table read_lines(const std::filesystem::path& file);

/// Reads lines that begin with a label: columns "label", up to the first `separator`, and "text",
/// all after it. Errors: KoloError(kData) naming file and line if there is no separator; as
/// `read_text`.
Table read_labelled_lines(const std::filesystem::path& file, char separator);

}  // namespace kolo::trainer
