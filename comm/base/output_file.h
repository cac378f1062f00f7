#pragma once

#include <string>
#include <string_view>

namespace kolo {

/// Checks before a long run that `write_file` can write `path`. An existing file stays; no new file
/// is left. Errors: KoloError(kIo) naming path and cause.
void expect_writable(const std::string& path);

/// Replaces the contents of `path` by `text`, by way of a file PATH.partial beside it. Devices and
/// pipes are written straight. Errors: KoloError(kIo) naming path and cause; then a file keeps what
/// it held.
void write_file(const std::string& path, std::string_view text);

/// Adds `text` to the end of `path`, which need not exist. Errors: KoloError(kIo) naming path and
/// cause; then the file is as long as before.
void append_file(const std::string& path, std::string_view text);

}  // namespace kolo
