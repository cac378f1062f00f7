#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "comm/base/error.h"

namespace kolo::trainer {

/// "FILE: WHAT", as KoloError(kData).
[[noreturn]] inline void throw_data_error(const std::filesystem::path& file,
                                          const std::string& what) {
  throw KoloError(Error{
      .code = ErrorCode::kData, .verb = {}, .bucket = {}, .what = file.string() + ": " + what});
}

/// "FILE: at byte OFFSET: WHAT"; offsets count unpacked bytes in a compressed file.
[[noreturn]] inline void throw_data_error(const std::filesystem::path& file, std::uint64_t offset,
                                          const std::string& what) {
  throw_data_error(file, "at byte " + std::to_string(offset) + ": " + what);
}

}  // namespace kolo::trainer
