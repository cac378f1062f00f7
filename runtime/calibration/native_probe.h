#pragma once

#include <chrono>

#include "comm/device/device.h"
#include "comm/device/device_communicator.h"
#include "topology/link_costs.h"
#include "topology/process_grid.h"

namespace kolo {

/// Times three all-reduces of 1 MiB by the library of the device, of which the shortest counts;
/// returns microseconds. Collective among the ranks of `world`, which are all connected; blocks.
/// Errors: KoloError(kTimeout) after `deadline`; failures of the communicator. `world` is then
/// aborted.
double time_native(Device& device, DeviceCommunicator& world, std::chrono::milliseconds deadline);

/// Sets the costs between nodes by the library of the device so that such an all-reduce is
/// predicted to take `us`.
void fit_native(double us, const ProcessGrid& grid, LinkCosts& costs);

}  // namespace kolo
