#pragma once

namespace kolo {

/// The version of the library and of all that ranks exchange: different versions do not connect.
inline constexpr const char* kVersion = "0.1.0";

}  // namespace kolo
