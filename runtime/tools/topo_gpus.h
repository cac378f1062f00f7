#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "topology/discovery.h"
#include "topology/gpu_discovery.h"

namespace kolo {

/// The GPUs of one node, for `kolo-topo`:
///
/// {absence: why there is none, or null,
///  devices: [{index, name, address, compute_capability, memory_bytes, numa_node, cpus,
///             numa_distances, network_card: address or null,
///             network_distances: {address: "PIX"}}],
///  links: [[{label: "NV18" or "PHB", nvlinks, through_switch, peer_access, performance_rank,
///            distance}]]}
nlohmann::json gpus_to_json(const GpuInventory& inventory, const HardwareSnapshot& hardware);

/// The GPUs as text, indented as part of a node. `hardware` is the node's, as JSON.
std::string gpus_to_text(const nlohmann::json& gpus, const nlohmann::json& hardware);

}  // namespace kolo
