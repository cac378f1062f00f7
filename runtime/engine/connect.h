#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/device/local_group.h"
#include "comm/native/device_factory.h"
#include "comm/native/group_factory.h"
#include "comm/network/error_door.h"
#include "comm/network/network_path.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/transport/transport.h"
#include "runtime/calibration/calibration.h"
#include "runtime/options/options.h"
#include "runtime/wait/wait_policy.h"
#include "topology/process_grid.h"

namespace kolo {

/// A rank's place in its job, and the way to its peers.
struct Connection {
  ProcessGrid grid;
  TransportLimits limits;  ///< What is left for buckets.
  std::unique_ptr<Transport> transport;
  // From the cores that the ranks of the machine share.
  int reduce_threads = 0;  ///< That help this rank.
  WaitPolicy wait = {};
  Calibration calibration;
  std::optional<DevicePlane> plane = {};  ///< With the option `device`.
  NetworkPath network = {};               ///< Empty on one node.
  /// Where ranks of other nodes bring an error of their own; null where they cannot.
  std::unique_ptr<ErrorDoor> door = {};
  std::vector<std::string> doors = {};  ///< Addresses of that of one rank of each other node.
  /// Collective rounds of the rendezvous: one for places, one to find the way between several
  /// nodes, one for addresses and introductions of devices, and one for measured links, which
  /// devices also need to know that all are connected.
  int start_up_rounds = 0;
};

/// Where the device of a rank and its groups come from: this build, or a test.
struct DeviceSource {
  std::function<decltype(open_device)> open = open_device;
  std::function<decltype(introduce_groups)> introduce = introduce_groups;
  std::function<decltype(connect_groups)> connect = connect_groups;
};

/// Joins the job: compares versions and options, finds out who shares a node, and opens shared
/// memory inside the node and, if there are several nodes, the network between them, finds out what
/// these cost, and opens the device with its groups if the options name one. Collective.
/// Errors: KoloError(kConfig), the same on every rank, naming option, ranks and values that differ;
///         KoloError(kIo), likewise, naming ranks, hosts and addresses that do not reach each
///         other; those of the transports.
Connection connect(Rendezvous& rendezvous, const Options& options,
                   const DeviceSource& devices = {});

}  // namespace kolo
