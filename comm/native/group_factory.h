#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "comm/device/device.h"
#include "comm/device/local_group.h"
#include "topology/process_grid.h"

namespace kolo {

/// The groups of a rank's device collectives.
struct DeviceGroups {
  std::unique_ptr<LocalGroup> node;   ///< The ranks of this rank's node, in ascending order.
  std::unique_ptr<LocalGroup> world;  ///< All ranks.
  std::unique_ptr<GroupConnector> connector;  ///< Connects those of any ranks, later.
};

/// How `rank` introduces itself to those that it connects to. All ranks exchange these texts.
/// Errors: KoloError(kConfig) if this build has no library of device collectives, or the library
///         does not support the device.
std::string introduce_groups(int rank, const Device& device);

/// Connects the device collectives of this build's library: NCCL on a GPU. Collective. Work that
/// the library does on its own threads at the start, for a launch or at the end is awaited until
/// `deadline`.
///
/// `introductions` are those of all ranks, by rank.
/// Before: `device` outlives the groups. Memory of `LocalGroup::allocate` may outlive them.
/// After:  this rank is connected. It uses the groups after a further exchange, when all are.
/// Errors: those of `introduce_groups`; KoloError(kConfig) if versions differ; kTimeout if ranks
///         are not connected within `deadline`; else those of the library.
DeviceGroups connect_groups(std::span<const std::string> introductions, int rank,
                            const ProcessGrid& grid, Device& device,
                            std::chrono::milliseconds deadline);

}  // namespace kolo
