#pragma once

#include <cstddef>

namespace kolo {

/// Bytes of the largest cache of this machine's first processor, or 0 if the system does not say.
/// Threads: any.
std::size_t last_level_cache_bytes();

}  // namespace kolo
