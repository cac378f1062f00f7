#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kolo {

/// Lets this process open as many files as the system allows it to, not only as many as it usually
/// does: a rank has several descriptors for each peer. Threads: any.
void raise_open_file_limit();

/// Errors: KoloError(kResources) unless this process may open so many files more, for libraries
/// that end the process when they find none left. Threads: any.
void require_open_files(std::size_t count, std::string_view reason);

/// The advice where none is left: "raise the limit of open files, which is 1024 (ulimit -n)".
std::string open_file_advice();

}  // namespace kolo
