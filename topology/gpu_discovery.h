#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kolo {

/// A GPU as CUDA numbers it in this process.
struct Gpu {
  std::string name;     ///< "NVIDIA H200"
  std::string address;  ///< On the PCI bus: "0000:1b:00.0".
  int compute_major = 0;
  int compute_minor = 0;
  std::size_t memory_bytes = 0;
};

/// Connection from one GPU to another.
struct GpuLink {
  int nvlinks = 0;              ///< Active NVLinks between the two; 0 if none or unknown.
  bool through_switch = false;  ///< The links end at an NVSwitch and are shared by all pairs.
  bool peer_access = false;     ///< One GPU can read and write the other's memory.
  int performance_rank = 0;     ///< CUDA's rank of the link: 0 is the best.
};

/// [from][to]; the diagonal is unused.
using GpuLinks = std::vector<std::vector<GpuLink>>;

/// The GPUs that this process may use, by CUDA's index.
struct GpuInventory {
  std::string absence = {};  ///< Reason for having none; empty if there are GPUs.
  std::vector<Gpu> gpus = {};
  GpuLinks links = {};
};

/// Asks CUDA and, about NVLinks, the driver's management library if it is installed. Creates no
/// CUDA context, so it takes no memory on any GPU. Neither a missing driver nor a missing GPU is an
/// error.
GpuInventory discover_gpus();

}  // namespace kolo
