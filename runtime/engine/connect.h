#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/device/device_communicator.h"
#include "comm/native/device_factory.h"
#include "comm/native/group_factory.h"
#include "comm/network/network_path.h"
#include "comm/network/out_of_band_abort.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/transport/transport.h"
#include "runtime/calibration/calibration.h"
#include "runtime/options/options.h"
#include "runtime/wait/wait_policy.h"
#include "topology/process_grid.h"

namespace kolo {

/// A rank's position in its job, and the transport to its peers.
struct Connection {
  ProcessGrid grid;
  TransportLimits limits;  ///< The resources left for buckets.
  std::unique_ptr<Transport> transport;
  // Derived from the cores that the ranks of the machine share.
  int reduce_threads = 0;  ///< Helper threads of this rank.
  WaitPolicy wait = {};
  Calibration calibration;
  std::optional<DeviceContext> device_context = {};  ///< Empty without a device.
  NetworkPath network = {};                          ///< Empty on one node.
  /// Receives errors of ranks on other nodes; null if it cannot be opened.
  std::unique_ptr<OutOfBandAbort> listener = {};
  std::vector<std::string> listeners = {};  ///< Listener addresses, one per other node.
  /// Number of collective rounds of the rendezvous: one for places, one to find a network path
  /// between nodes, one for addresses and device introductions, one for link costs, after which all
  /// ranks have connected their devices, and one for the time of a collective of devices.
  int start_up_rounds = 0;
};

/// Functions that create the device of a rank and its communicators; tests replace them.
struct DeviceSource {
  std::function<decltype(open_device)> open = open_device;
  std::function<decltype(introduce_groups)> introduce = introduce_groups;
  std::function<decltype(connect_groups)> connect = connect_groups;
};

/// Joins the job. Compares versions and options, finds out which ranks share a node, opens shared
/// memory inside the node and the network between nodes, determines their costs, and opens the
/// device with its groups if the options name one. Collective.
///
/// Errors: KoloError(kConfig), the same on every rank, which names option, ranks and values that
///         differ; KoloError(kIo), the same on every rank, which names ranks, hosts and addresses
///         that cannot reach each other; errors of the transports.
Connection connect(Rendezvous& rendezvous, const Options& options,
                   const DeviceSource& devices = {});

}  // namespace kolo
