#pragma once

#include <memory>
#include <optional>

#include "comm/device/device_plane.h"
#include "comm/network/network_path.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/transport/transport.h"
#include "runtime/api/options.h"
#include "runtime/calibration/calibration.h"
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
  /// Collective rounds of the rendezvous: one for places, two to find the way between several
  /// nodes, one for addresses, one if links are measured, and two for a device.
  int start_up_rounds = 0;
};

/// Joins the job: compares versions and options, finds out who shares a node, and opens shared
/// memory inside the node and, if there are several nodes, the network between them, finds out what
/// these cost, and opens the device with its groups if the options name one. Collective.
/// Errors: KoloError(kConfig), the same on every rank, naming option, ranks and values that differ;
///         KoloError(kIo), likewise, naming ranks, hosts and addresses that do not reach each
///         other; those of the transports.
Connection connect(Rendezvous& rendezvous, const Options& options);

}  // namespace kolo
