#pragma once

#include <cstddef>
#include <string_view>

#include "comm/device/device_memory.h"

namespace kolo {

/// Poisons host memory that plays device or pinned memory, before its first use and after its last:
/// with NaN in every float dtype and -1 in the signed integers, so that unwritten values show.
inline constexpr std::byte kPoison{0xff};

/// Poisoned host memory of kind `kind`, aligned to 256 bytes. Errors: KoloError(kResources) naming
/// bytes, kind and `device`.
DeviceMemory allocate_poisoned(std::size_t bytes, MemoryKind kind, std::string_view device);

}  // namespace kolo
