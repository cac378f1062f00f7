#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kolo {

/// A GPU as CUDA numbers it in this process.
struct Gpu {
  std::string name;     ///< Such as "NVIDIA H200".
  std::string address;  ///< PCI address, such as "0000:1b:00.0".
  int compute_major = 0;
  int compute_minor = 0;
  std::size_t memory_bytes = 0;
};

/// The connection from one GPU to another.
struct GpuLink {
  int nvlinks = 0;              ///< Number of active NVLinks between the two; 0 if none or unknown.
  bool through_switch = false;  ///< The links end at an NVSwitch, which all pairs of GPUs share.
  bool peer_access = false;     ///< One GPU can read and write the other's memory.
  int performance_rank = 0;     ///< CUDA's rank of the link's performance; 0 is the best.
};

/// Links indexed by [from][to]; the diagonal is unused.
using GpuLinks = std::vector<std::vector<GpuLink>>;

/// The GPUs that this process may use, by CUDA's index.
struct GpuInventory {
  std::string absence = {};  ///< The reason why there is no GPU; empty if there are GPUs.
  std::vector<Gpu> gpus = {};
  GpuLinks links = {};
};

/// Asks CUDA for the GPUs, and the driver's management library for NVLinks if it is installed.
/// Creates no CUDA context, so it uses no memory on any GPU. A missing driver is no error.
GpuInventory discover_gpus();

}  // namespace kolo
