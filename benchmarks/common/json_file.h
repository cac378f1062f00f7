#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "comm/base/output_file.h"

namespace kolo::bench {

/// Writes `value`, indented, to the file `path` if there is a path. Errors: KoloError(kIo) naming
/// the file.
inline void write_json(const std::string& path, const nlohmann::json& value) {
  if (!path.empty()) write_file(path, value.dump(2) + '\n');
}

}  // namespace kolo::bench
