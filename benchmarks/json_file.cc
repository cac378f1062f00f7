#include "benchmarks/json_file.h"

#include <fstream>

#include <nlohmann/json.hpp>

#include "comm/base/error.h"

namespace kolo::bench {

void write_json(const std::string& path, const nlohmann::json& value) {
  std::ofstream file(path);
  file << value.dump(2) << '\n';
  if (!file.flush()) throw KoloError({.code = ErrorCode::kIo, .what = "cannot write " + path});
}

}  // namespace kolo::bench
