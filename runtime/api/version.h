#pragma once

namespace kolo {

/// Of the library and of everything that ranks exchange: different versions do not talk.
inline constexpr const char* kVersion = "0.1.0";

}  // namespace kolo
