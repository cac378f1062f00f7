#pragma once

#include <string>
#include <string_view>

namespace kolo {

/// Checks before a long run that `write_file` can write `path`. An existing file stays; no new file
/// is left. Errors: KoloError(kIo) naming path and cause.
void expect_writable(const std::string& path);

/// Replaces the contents of `path` by `text`. Errors: KoloError(kIo) naming path and cause.
void write_file(const std::string& path, std::string_view text);

/// Adds `text` to the end of `path`, which need not exist. Errors: KoloError(kIo) naming path and
/// cause; then a part of it may have been written.
void append_file(const std::string& path, std::string_view text);

}  // namespace kolo
