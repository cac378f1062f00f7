#pragma once

#include <string>
#include <string_view>

namespace kolo {

/// Finds out before a long run whether `write_file` will be able to write `path`. What is there
/// stays; nothing new is left there. Errors: KoloError(kIo) naming path and cause.
void expect_writable(const std::string& path);

/// Replaces what is at `path` by `text`. Errors: KoloError(kIo) naming path and cause.
void write_file(const std::string& path, std::string_view text);

}  // namespace kolo
