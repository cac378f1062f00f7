#include "comm/native/network_factory.h"

#include "comm/base/error.h"

#if KOLO_WITH_UCX
#include "comm/transport/ucx_transport.h"
#endif

namespace kolo {

#if KOLO_WITH_UCX

std::unique_ptr<NetworkTransport> open_network(const NetworkConfig& config) {
  return UcxTransport::create({.rank = config.rank,
                               .world_size = config.world_size,
                               .library = config.ucx_library,
                               .interface = config.interface,
                               .address = config.address,
                               .control_peers = config.control_peers});
}

bool network_uses_tcp() { return UcxTransport::uses_tcp(); }

#else

std::unique_ptr<NetworkTransport> open_network(const NetworkConfig&) {
  throw KoloError(
      {.code = ErrorCode::kConfig,
       .what = "the job spans several nodes, but this build of Kolo has no network transport; "
               "configure it with -DKOLO_WITH_UCX=ON"});
}

bool network_uses_tcp() { return false; }

#endif

}  // namespace kolo
