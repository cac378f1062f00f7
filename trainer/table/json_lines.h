#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trainer/table/table.h"

namespace kolo::trainer {

/// Reads the named members of the JSON objects of a plain or gzip file, one object a line. A number
/// or a truth value becomes its text; blank lines are passed over.
///
/// Errors: KoloError(kData) naming file and line: not an object in JSON, a member that is missing
///         or is neither text, number nor truth value; as `read_text`.
Table read_json_lines(const std::filesystem::path& file, const std::vector<std::string>& columns);

}  // namespace kolo::trainer
