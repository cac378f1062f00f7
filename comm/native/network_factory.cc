#include "comm/native/network_factory.h"

#include "comm/base/error.h"

#if KOLO_WITH_UCX
#include "comm/transport/ucx_transport.h"
#endif

namespace kolo {

std::unique_ptr<NetworkTransport> open_network([[maybe_unused]] const NetworkConfig& config) {
#if KOLO_WITH_UCX
  return UcxTransport::create({.rank = config.rank,
                               .world_size = config.world_size,
                               .library = config.ucx_library,
                               .interface = config.interface,
                               .address = config.address,
                               .control_peers = config.control_peers});
#else
  throw KoloError(
      {.code = ErrorCode::kConfig,
       .what = "the job spans several nodes, but this build of Kolo has no network transport; "
               "configure it with -DKOLO_WITH_UCX=ON"});
#endif
}

bool network_uses_tcp() {
#if KOLO_WITH_UCX
  return UcxTransport::uses_tcp();
#else
  return false;
#endif
}

}  // namespace kolo
