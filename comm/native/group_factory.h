#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "comm/device/device.h"
#include "comm/device/device_communicator.h"
#include "topology/process_grid.h"

namespace kolo {

/// The device groups of a rank.
struct DeviceCommunicators {
  /// Group of this node's ranks, ascending; null if these are all ranks.
  std::unique_ptr<DeviceCommunicator> node;
  std::unique_ptr<DeviceCommunicator> world;         ///< Group of all ranks.
  std::unique_ptr<CommunicatorConnector> connector;  ///< Connects further groups.
};

/// Returns whether this build has NCCL.
bool is_built_with_nccl();

/// Returns the data of `rank` for `connect_groups`. All ranks exchange it before they connect.
/// Loads NCCL from the file `library`; empty for that of the process or the system. Errors:
/// KoloError(kConfig) if there is no NCCL, or the device is not a GPU.
std::string introduce_groups(int rank, const Device& device, const std::string& library);

/// Connects the device groups of this rank (by NCCL). Collective; blocks. `deadline` limits the
/// wait for NCCL's background work: at the start, for each later launch, and at the end.
///
/// `introductions` holds the results of `introduce_groups`, by rank.
/// Before: `device` outlives the groups. Memory that the groups allocate may outlive them.
/// After:  this rank is connected. It may use the groups after a further exchange, when all ranks
/// are connected.
/// Errors: those of `introduce_groups`; KoloError(kConfig) if versions differ; kTimeout if ranks
///         are not connected within `deadline`; otherwise those of NCCL.
DeviceCommunicators connect_groups(std::span<const std::string> introductions, int rank,
                                   const ProcessGrid& grid, Device& device,
                                   std::chrono::milliseconds deadline);

}  // namespace kolo
