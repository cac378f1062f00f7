#pragma once

#include <memory>

#include "comm/rendezvous/rendezvous.h"
#include "comm/transport/transport.h"

namespace kolo {

/// The network transport of this build: UCX. Collective: ranks exchange their addresses through
/// `rendezvous`. Errors: KoloError(kConfig) if the build has none; those of `UcxTransport`.
std::unique_ptr<MessageTransport> connect_network(Rendezvous& rendezvous);

}  // namespace kolo
