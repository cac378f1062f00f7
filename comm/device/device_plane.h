#pragma once

#include <memory>

#include "comm/device/device.h"
#include "comm/device/local_group.h"

namespace kolo {

/// The device of a rank and its collectives. Members are destroyed in reverse order: the groups
/// first.
struct DevicePlane {
  std::unique_ptr<Device> device;
  std::unique_ptr<LocalGroup> node;   ///< The ranks of this rank's node.
  std::unique_ptr<LocalGroup> world;  ///< All ranks.
  bool network_takes_memory = false;  ///< True if the network takes memory of this device on every
                                      ///< rank, so nothing need be staged.
};

}  // namespace kolo
