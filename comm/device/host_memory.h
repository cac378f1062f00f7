#pragma once

#include <cstddef>
#include <string_view>

#include "comm/device/device_memory.h"

namespace kolo {

/// Fills host memory that plays device or pinned memory before its first use and after its last:
/// NaN in every float dtype, -1 in the signed integers, so that what nobody wrote shows in results.
inline constexpr std::byte kPoison{0xff};

/// Poisoned host memory that calls itself `kind`, aligned to 256 bytes.
/// Errors: KoloError(kResources) that names bytes, kind and `device`.
DeviceMemory allocate_poisoned(std::size_t bytes, MemoryKind kind, std::string_view device);

}  // namespace kolo
