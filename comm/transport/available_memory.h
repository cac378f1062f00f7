#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace kolo {

/// How much memory this process can still take before the kernel swaps or ends processes.
struct AvailableMemory {
  std::size_t bytes = 0;  ///< The largest value: the system does not say.
  std::string limit;      ///< What sets the limit, for errors: "this machine", a control group.
};

/// The least of what the machine has available and what each control group of this process, and
/// each of the group's parents, leaves of its limit. Knows both versions of control groups. Memory
/// that holds cached files counts as available, since the kernel gives it back.
///
/// `root` replaces "/" in tests. Threads: any. Cost: reads a few files of the kernel.
AvailableMemory available_memory(const std::filesystem::path& root = "/");

}  // namespace kolo
