#pragma once

#include <string>
#include <utility>

#include "comm/base/error.h"

namespace kolo::trainer {

/// Throws KoloError(kConfig).
[[noreturn]] inline void throw_config_error(std::string what) {
  throw KoloError(
      Error{.code = ErrorCode::kConfig, .verb = {}, .bucket = {}, .what = std::move(what)});
}

}  // namespace kolo::trainer
