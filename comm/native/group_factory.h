#pragma once

#include <chrono>
#include <memory>

#include "comm/device/device.h"
#include "comm/device/local_group.h"
#include "comm/rendezvous/rendezvous.h"
#include "topology/process_grid.h"

namespace kolo {

/// What a rank's device collectives go among.
struct DeviceGroups {
  std::unique_ptr<LocalGroup> node;   ///< The ranks of this rank's node, in ascending order.
  std::unique_ptr<LocalGroup> world;  ///< All ranks.
};

/// The collectives of the library that this build has for `device`: NCCL on a GPU. Collective:
/// ranks find each other through `rendezvous`, and return when all are connected. What the library
/// does for start, for a launch or for an end on its own threads is waited for until `deadline`.
///
/// Before: `device` outlives the groups. Memory of `LocalGroup::allocate` may outlive them.
/// Errors: KoloError(kConfig) if this build has no such library, the device is none of its, or
///         versions do not fit; kTimeout if ranks are not connected within `deadline`; else those
///         of the library.
DeviceGroups connect_groups(Rendezvous& rendezvous, const ProcessGrid& grid, Device& device,
                            std::chrono::milliseconds deadline);

}  // namespace kolo
