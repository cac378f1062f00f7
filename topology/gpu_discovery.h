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

/// How one GPU reaches another.
struct GpuLink {
  int nvlinks = 0;              ///< Active NVLinks between the two; 0 if none, or unknown.
  bool through_switch = false;  ///< They end at an NVSwitch and are shared by all pairs.
  bool peer_access = false;     ///< The one can read and write the other's memory.
  int performance_rank = 0;     ///< CUDA's rank of the link: 0 is the best.
};

/// [from][to]; the diagonal has no meaning.
using GpuLinks = std::vector<std::vector<GpuLink>>;

/// The GPUs that this process may use, by CUDA's index.
struct GpuInventory {
  std::string absence = {};  ///< Why there is none; empty if there are some.
  std::vector<Gpu> gpus = {};
  GpuLinks links = {};
};

/// Asks CUDA, and the driver's management library about NVLinks where there is one. Makes no CUDA
/// context, so it takes no memory on any GPU. Neither a missing driver nor a missing GPU is an
/// error.
GpuInventory discover_gpus();

}  // namespace kolo
