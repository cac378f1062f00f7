#pragma once

#include <string>
#include <string_view>

namespace kolo {

/// Checks before a long run that `write_file` can write `path`. Leaves an existing file unchanged
/// and creates none. Errors: KoloError(kIo) with path and cause.
void expect_writable(const std::string& path);

/// Replaces the contents of `path` by `text`, through a temporary file PATH.partial beside it.
/// Devices and pipes are written directly. Errors: KoloError(kIo) with path and cause; a file then
/// keeps its previous contents.
void write_file(const std::string& path, std::string_view text);

/// Appends `text` to `path`, which need not exist. Errors: KoloError(kIo) with path and cause; the
/// file then keeps its previous length.
void append_file(const std::string& path, std::string_view text);

}  // namespace kolo
