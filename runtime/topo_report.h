#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "topology/cost_model.h"
#include "topology/discovery.h"
#include "topology/process_grid.h"

namespace kolo {

/// What `kolo-topo` tells about a job.
struct TopoReport {
  ProcessGrid grid;
  std::vector<nlohmann::json> hardware;  ///< By node, as `to_json(HardwareSnapshot)` gives it.
  LinkCosts costs;
};

/// The form in which a snapshot travels between ranks and appears in the report.
nlohmann::json to_json(const HardwareSnapshot& hardware);

/// {ranks: [{rank, node, local_rank, cross_rank}], nodes: [{node, id, ranks, hardware}],
///  link_costs, predictions: [{bytes, chosen, chosen_16bit, us: {algorithm: microseconds}}]}
nlohmann::json to_json(const TopoReport& report);

/// The same as tables for people, made from `to_json(report)`.
std::string to_text(const nlohmann::json& report);

}  // namespace kolo
