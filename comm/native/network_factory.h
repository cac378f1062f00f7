#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/transport/transport.h"

namespace kolo {

struct NetworkConfig {
  int rank = 0;
  int world_size = 1;
  std::string ucx_library = {};         ///< Path of UCX. If empty, search the library path.
  std::string interface = {};           ///< Interface for TCP: "eth0". If empty, UCX chooses.
  std::string address = {};             ///< Address of `interface`; TCP uses its address family.
  std::vector<int> control_peers = {};  ///< Ranks to connect to at once, for control frames.
};

/// Opens the network transport of this build (UCX). Ranks exchange its addresses, then connect it.
/// Errors: KoloError(kConfig) if the build has none; those of the transport.
std::unique_ptr<NetworkTransport> open_network(const NetworkConfig& config);

/// Whether the network transport uses TCP, and therefore one IP interface. False if this machine
/// has RDMA devices or UCX_TLS excludes TCP. Threads: any, while no thread changes the environment.
bool network_uses_tcp();

}  // namespace kolo
