#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace kolo::bench {

/// Writes `value` to the file `path`, indented, if there is a path. Errors: KoloError(kIo) naming
/// it.
void write_json(const std::string& path, const nlohmann::json& value);

}  // namespace kolo::bench
