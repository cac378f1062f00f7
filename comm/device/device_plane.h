#pragma once

#include <memory>

#include "comm/device/device.h"
#include "comm/device/group_connector.h"
#include "comm/device/local_group.h"

namespace kolo {

/// The device of a rank and its collectives. Members are destroyed in reverse order: the groups
/// first.
struct DevicePlane {
  std::unique_ptr<Device> device;
  std::unique_ptr<LocalGroup> node;   ///< The ranks of this rank's node.
  std::unique_ptr<LocalGroup> world;  ///< All ranks.
  /// Connects those of other groups of ranks; null: they have none.
  std::unique_ptr<GroupConnector> connector;
  bool network_takes_memory = false;  ///< True if the network takes memory of this device on every
                                      ///< rank, so nothing need be staged.
};

/// What a group of ranks has of the device. Members outlive it.
struct DeviceAccess {
  Device& device;
  LocalGroup* node = nullptr;           ///< Null: none.
  LocalGroup* world = nullptr;          ///< Of all of them. Null: none yet.
  GroupConnector* connector = nullptr;  ///< Connects `world` when it is needed; null: nobody does.
  bool network_takes_memory = false;

  static DeviceAccess of(const DevicePlane& plane) {
    return {.device = *plane.device,
            .node = plane.node.get(),
            .world = plane.world.get(),
            .network_takes_memory = plane.network_takes_memory};
  }
};

}  // namespace kolo
