#pragma once

#include <memory>

#include "comm/transport/transport.h"

namespace kolo {

/// The network transport of this build: UCX. Ranks exchange its addresses and then connect it.
/// Errors: KoloError(kConfig) if the build has none; those of `UcxTransport`.
std::unique_ptr<NetworkTransport> open_network(int rank, int world_size);

}  // namespace kolo
