#pragma once

#include <memory>

#include "comm/device/device.h"
#include "comm/device/local_group.h"

namespace kolo {

/// What a rank computes and communicates with on its accelerator. Members are destroyed in reverse:
/// the groups first.
struct DevicePlane {
  std::unique_ptr<Device> device;
  std::unique_ptr<LocalGroup> node;   ///< The ranks of this rank's node.
  std::unique_ptr<LocalGroup> world;  ///< All ranks.
  bool network_takes_memory = false;  ///< Of this device, on every rank: nothing need be staged.
};

}  // namespace kolo
