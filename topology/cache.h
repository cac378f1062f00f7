#pragma once

#include <cstddef>
#include <filesystem>

namespace kolo {

/// Bytes of the largest cache of a processor that the system describes in this folder, or 0 if it
/// does not say. A virtual machine may be told of the whole cache of a host that it shares with
/// others: more than 24 MiB for each hardware thread, which no processor has, does not count.
/// Threads: any.
std::size_t last_level_cache_bytes(
    const std::filesystem::path& cpu = "/sys/devices/system/cpu/cpu0");

}  // namespace kolo
