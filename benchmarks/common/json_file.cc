#include "benchmarks/common/json_file.h"

#include <nlohmann/json.hpp>

#include "comm/base/output_file.h"

namespace kolo::bench {

void write_json(const std::string& path, const nlohmann::json& value) {
  if (!path.empty()) write_file(path, value.dump(2) + '\n');
}

}  // namespace kolo::bench
