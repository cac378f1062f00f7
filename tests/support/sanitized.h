#pragma once

namespace kolo::test {

/// Whether a sanitizer slows this build down. Work that would then take a quarter of a minute, such
/// as proving schedules of many chunks, is left to the Release build.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace kolo::test
