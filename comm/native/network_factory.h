#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/transport/transport.h"

namespace kolo {

struct NetworkConfig {
  int rank = 0;
  int world_size = 1;
  std::string ucx_library = {};         ///< Empty: search the system's library path.
  std::string interface = {};           ///< For TCP, such as "eth0". Empty: UCX chooses.
  std::string address = {};             ///< Address of that interface; messages use its address
                                        ///< family.
  std::vector<int> control_peers = {};  ///< Peers to connect at once, for control frames.
};

/// Opens the network transport of this build. Ranks exchange its addresses and then connect it.
/// Errors: KoloError(kConfig) if the build has none; those of the transport.
std::unique_ptr<NetworkTransport> open_network(const NetworkConfig& config);

/// Whether the network transport uses TCP, and so one IP interface: false if this machine has RDMA
/// devices, or if the user's UCX_TLS excludes TCP. Threads: any, as long as no thread changes the
/// environment.
bool network_uses_tcp();

}  // namespace kolo
