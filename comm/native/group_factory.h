#pragma once

#include <chrono>
#include <memory>

#include "comm/device/device.h"
#include "comm/device/group_connector.h"
#include "comm/device/local_group.h"
#include "comm/rendezvous/rendezvous.h"
#include "topology/process_grid.h"

namespace kolo {

/// The groups of a rank's device collectives.
struct DeviceGroups {
  std::unique_ptr<LocalGroup> node;   ///< The ranks of this rank's node, in ascending order.
  std::unique_ptr<LocalGroup> world;  ///< All ranks.
  std::unique_ptr<GroupConnector> connector;  ///< Connects those of any ranks, later.
};

/// Connects the device collectives of this build's library: NCCL on a GPU. Collective: ranks find
/// each other through `rendezvous` and return when all are connected. Work that the library does on
/// its own threads at the start, for a launch or at the end is awaited until `deadline`.
///
/// Before: `device` outlives the groups. Memory of `LocalGroup::allocate` may outlive them.
/// Errors: KoloError(kConfig) if this build has no such library, the library does not support the
///         device, or versions differ; kTimeout if ranks are not connected within `deadline`; else
///         those of the library.
DeviceGroups connect_groups(Rendezvous& rendezvous, const ProcessGrid& grid, Device& device,
                            std::chrono::milliseconds deadline);

}  // namespace kolo
