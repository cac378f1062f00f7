#pragma once

namespace kolo::test {

/// Whether this build runs under a sanitizer, which is slow. Work that would take 15 seconds, such
/// as proving schedules of many chunks, is then left to the Release build.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace kolo::test
