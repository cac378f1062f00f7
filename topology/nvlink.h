#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topology/gpu_discovery.h"

namespace kolo {

/// Where one NVLink of a GPU ends.
struct NvLinkEnd {
  enum class Kind : std::uint8_t { kGpu, kSwitch, kOther };
  Kind kind = Kind::kOther;
  std::string address;  ///< PCI address of what is there; empty if unknown.
};

/// A PCI address in the form that this project compares: "00000000:1B:00.0" as NVIDIA writes it
/// becomes "0000:1b:00.0".
std::string pci_address(std::string_view text);

/// Counts the NVLinks between each two GPUs; `ends_of_gpu` lists, by GPU, where each of its links
/// ends. GPUs behind NVSwitches reach each other with as many links as the one with fewer has
/// there.
///
/// Threads: pure.
void add_nvlinks(GpuInventory& inventory, const std::vector<std::vector<NvLinkEnd>>& ends_of_gpu);

}  // namespace kolo
