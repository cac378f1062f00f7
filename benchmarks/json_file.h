#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace kolo::bench {

/// Writes `value` to the file `path`, indented. Errors: KoloError(kIo) naming the path.
void write_json(const std::string& path, const nlohmann::json& value);

}  // namespace kolo::bench
