#pragma once

#include <string>
#include <string_view>

#include "topology/cost_model.h"

namespace kolo {

/// Reads link costs from text, as `--link-costs` and KOLO_LINK_COSTS give them: comma-separated
/// `key=value` with the keys LINK_latency_us and LINK_bytes_per_us, where LINK is memory, network,
/// device, staging or native_network (see LinkCosts). Keys that are left out keep the value they
/// have in `defaults`, except that native_network follows network unless it is named itself.
///
///   parse_link_costs("network_latency_us=2.5,network_bytes_per_us=12000")
///
/// Units:   microseconds; bytes per microsecond (1000 is 1 GB/s).
/// Errors:  std::invalid_argument naming key and value: unknown key, not a number, negative or
///          infinite, no bandwidth.
/// Threads: pure; any.
LinkCosts parse_link_costs(std::string_view text, LinkCosts defaults = {});

/// The text that `parse_link_costs` reads back as `costs`.
std::string to_string(const LinkCosts& costs);

}  // namespace kolo
