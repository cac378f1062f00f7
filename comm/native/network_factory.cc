#include "comm/native/network_factory.h"

#include "comm/base/error.h"

#if KOLO_WITH_UCX
#include "comm/transport/ucx_transport.h"
#endif

namespace kolo {

#if KOLO_WITH_UCX

std::unique_ptr<MessageTransport> connect_network(Rendezvous& rendezvous) {
  auto transport =
      UcxTransport::create({.rank = rendezvous.rank(), .world_size = rendezvous.size()});
  transport->connect(rendezvous.all_gather(transport->address()));
  return transport;
}

#else

std::unique_ptr<MessageTransport> connect_network(Rendezvous&) {
  throw KoloError(
      {.code = ErrorCode::kConfig,
       .what = "the job spans several nodes, but this build of Kolo has no network transport; "
               "configure it with -DKOLO_WITH_UCX=ON"});
}

#endif

}  // namespace kolo
