#pragma once

#include <cstddef>

namespace kolo {

/// Bytes of a result whose lines a kernel owns before it writes them: as many as a core can wait
/// for at a time.
inline constexpr std::size_t kOwnedBytes = 1024;

/// Asks for the lines of [begin, end), which the caller is about to write. Stores alone have fewer
/// of them in flight: lines that another core has read last arrive at half the rate.
inline void own_lines(const void* begin, const void* end) {
  constexpr std::size_t kLine = 64;
  for (auto* line = static_cast<const std::byte*>(begin); line < end; line += kLine) {
#if defined(__x86_64__)
    // It does nothing on a processor that lacks it. Compilers turn the builtin into a prefetch for
    // reading.
    asm volatile("prefetchw %0" : : "m"(*line));
#else
    __builtin_prefetch(line, 1);
#endif
  }
}

}  // namespace kolo
