#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "topology/discovery.h"
#include "topology/gpu_discovery.h"
#include "topology/link_costs.h"
#include "topology/process_grid.h"

namespace kolo {

/// The contents of `kolo-topo`'s report about a job.
struct TopoReport {
  ProcessGrid grid;
  /// By node: {hardware: `to_json(HardwareSnapshot)`, gpus: `gpus_to_json(...)`, network:
  /// {interface, address} towards the other nodes (empty with one node), reduce_threads: helper
  /// threads of each rank}.
  std::vector<nlohmann::json> nodes;
  LinkCosts costs;
  std::string costs_source;  ///< "measured in 120 ms", ...
  int start_up_rounds = 0;   ///< See `Connection`.
};

/// Converts a snapshot to JSON, for the exchange between ranks and for the report.
nlohmann::json to_json(const HardwareSnapshot& hardware);

/// {ranks: [{rank, node, local_rank, cross_rank}],
///  nodes: [{node, id, name, ranks, hardware, gpus, network, reduce_threads}],
///  link_costs: {key of `parse_link_costs`: value}, node_rates: [bytes per microsecond, if links
///  differ], link_costs_source, start_up_rounds,
///  predictions: [{bytes, chosen, chosen_16bit, chosen_device, chunk_bytes,
///                fusion_bytes, us: {algorithm: microseconds}}]}
nlohmann::json to_json(const TopoReport& report);

/// Formats `to_json(report)` as readable tables, without costs and algorithms of devices or
/// networks if the job has none.
std::string to_text(const nlohmann::json& report);

/// Converts the GPUs of one node to JSON, for `kolo-topo`:
///
/// {absence: why there is none, or null,
///  devices: [{index, name, address, compute_capability, memory_bytes, numa_node, cpus,
///             numa_distances, network_card: address or null,
///             network_distances: {address: "PIX"}}],
///  links: [[{label: "NV18" or "PHB", nvlinks, through_switch, peer_access, performance_rank,
///            distance}]]}
nlohmann::json gpus_to_json(const GpuInventory& inventory, const HardwareSnapshot& hardware);

/// Formats the GPUs as text, indented as part of a node. `hardware` is the node's hardware as JSON.
std::string gpus_to_text(const nlohmann::json& gpus, const nlohmann::json& hardware);

}  // namespace kolo
