#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kolo {

/// Raises this process's limit of open files to the maximum that the system allows, because a rank
/// has several descriptors per peer. Threads: any.
void raise_open_file_limit();

/// Checks that this process can open `count` more files, for libraries that terminate the process
/// if it cannot. `reason` begins the error text. Errors: KoloError(kResources). Threads: any.
void require_open_files(std::size_t count, std::string_view reason);

/// Returns advice for error texts: "raise the limit of open files, which is 1024 (ulimit -n)".
std::string open_file_advice();

}  // namespace kolo
