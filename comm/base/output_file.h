#pragma once

#include <string>
#include <string_view>

namespace kolo {

/// Checks that `write_file` can write `path`, without changing or creating that file. Errors:
/// KoloError(kIo) with path and cause.
void expect_writable(const std::string& path);

/// Replaces the contents of `path` by `text`. Writes a temporary file PATH.partial and renames it;
/// devices and pipes are written directly. Errors: KoloError(kIo) with path and cause; the file
/// then keeps its previous contents.
void write_file(const std::string& path, std::string_view text);

/// Appends `text` to the file `path`, and creates the file if needed. Errors: KoloError(kIo) with
/// path and cause; the file then keeps its previous length.
void append_file(const std::string& path, std::string_view text);

}  // namespace kolo
