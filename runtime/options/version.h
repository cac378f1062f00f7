#pragma once

namespace kolo {

/// Version of the library and of its protocol: ranks with different versions do not connect.
inline constexpr const char* kVersion = "0.1.0";

}  // namespace kolo
