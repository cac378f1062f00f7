#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/base/error.h"
#include "comm/base/nearest_name.h"

namespace kolo::trainer {

/// Throws KoloError(kConfig).
[[noreturn]] inline void throw_config_error(std::string what) {
  throw KoloError(
      Error{.code = ErrorCode::kConfig, .verb = {}, .bucket = {}, .what = std::move(what)});
}

/// Throws UsageError: `option` does not take `text`. The text suggests the nearest of `names`.
[[noreturn]] inline void throw_unknown_choice(std::string_view option, std::string_view text,
                                              const std::vector<std::string>& names) {
  throw UsageError(std::string(option) + ": " + describe_unknown(text, names));
}

}  // namespace kolo::trainer
