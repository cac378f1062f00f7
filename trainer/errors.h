#pragma once

#include <cstdint>
#include <filesystem>
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

/// Throws UsageError: `option` does not accept `text`. The message suggests the most similar name.
[[noreturn]] inline void throw_unknown_choice(std::string_view option, std::string_view text,
                                              const std::vector<std::string>& names) {
  throw UsageError(std::string(option) + ": " + describe_unknown(text, names));
}

/// Throws KoloError(kData) with the message "FILE: WHAT".
[[noreturn]] inline void throw_data_error(const std::filesystem::path& file,
                                          const std::string& what) {
  throw KoloError(Error{
      .code = ErrorCode::kData, .verb = {}, .bucket = {}, .what = file.string() + ": " + what});
}

/// Throws KoloError(kData) with the message "FILE: at byte OFFSET: WHAT". In a compressed file,
/// offsets count decompressed bytes.
[[noreturn]] inline void throw_data_error(const std::filesystem::path& file, std::uint64_t offset,
                                          const std::string& what) {
  throw_data_error(file, "at byte " + std::to_string(offset) + ": " + what);
}

}  // namespace kolo::trainer
