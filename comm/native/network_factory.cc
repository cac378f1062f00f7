#include "comm/native/network_factory.h"

#include "comm/base/error.h"

#if KOLO_WITH_UCX
#include "comm/transport/ucx_transport.h"
#endif

namespace kolo {

#if KOLO_WITH_UCX

std::unique_ptr<NetworkTransport> open_network(int rank, int world_size,
                                               const std::string& ucx_library) {
  return UcxTransport::create({.rank = rank, .world_size = world_size, .library = ucx_library});
}

#else

std::unique_ptr<NetworkTransport> open_network(int, int, const std::string&) {
  throw KoloError(
      {.code = ErrorCode::kConfig,
       .what = "the job spans several nodes, but this build of Kolo has no network transport; "
               "configure it with -DKOLO_WITH_UCX=ON"});
}

#endif

}  // namespace kolo
