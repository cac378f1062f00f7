#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "comm/device/device.h"
#include "comm/device/device_communicator.h"
#include "topology/process_grid.h"

namespace kolo {

/// The groups of a rank's device collectives.
struct DeviceCommunicators {
  std::unique_ptr<DeviceCommunicator> node;  ///< The ranks of this rank's node, in ascending order.
  std::unique_ptr<DeviceCommunicator> world;  ///< All ranks.
  std::unique_ptr<CommunicatorConnector>
      connector;  ///< Connects device groups of any ranks, later.
};

/// The text by which `rank` introduces itself to the ranks that it connects to. All ranks exchange
/// it.
/// Errors: KoloError(kConfig) if this build has no library of device collectives, or the library
///         does not support the device.
std::string introduce_groups(int rank, const Device& device);

/// Connects the device collectives of this build's library: NCCL on a GPU. Collective. The
/// library's background work at the start, for each launch and at the end is awaited until
/// `deadline`.
///
/// `introductions` holds the texts of all ranks, by rank.
/// Before: `device` outlives the groups. Memory of `DeviceCommunicator::allocate` may outlive them.
/// After:  this rank is connected. It may use the groups after a further exchange, when all ranks
/// are.
/// Errors: those of `introduce_groups`; KoloError(kConfig) if versions differ; kTimeout if ranks
///         are not connected within `deadline`; else those of the library.
DeviceCommunicators connect_groups(std::span<const std::string> introductions, int rank,
                                   const ProcessGrid& grid, Device& device,
                                   std::chrono::milliseconds deadline);

}  // namespace kolo
