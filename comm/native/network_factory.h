#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/transport/transport.h"

namespace kolo {

struct NetworkConfig {
  int rank = 0;
  int world_size = 1;
  std::string ucx_library = {};         ///< Empty: where the system has it.
  std::string interface = {};           ///< For TCP: "eth0". Empty: whatever UCX chooses.
  std::string address = {};             ///< Of that interface; messages go in its family.
  std::vector<int> control_peers = {};  ///< Connected at once, for control frames.
};

/// The network transport of this build. Ranks exchange its addresses and then connect it.
/// Errors: KoloError(kConfig) if the build has none; those of the transport.
std::unique_ptr<NetworkTransport> open_network(const NetworkConfig& config);

/// Whether that transport moves data over TCP, and so through one interface of IP: not where this
/// machine has devices that move data by themselves, or the user's UCX_TLS leaves TCP out.
/// Threads: any, as long as nobody changes the environment.
bool network_uses_tcp();

}  // namespace kolo
