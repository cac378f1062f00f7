#pragma once

#include <memory>
#include <string>

#include "comm/transport/transport.h"

namespace kolo {

/// The network transport of this build: UCX, loaded from the file `ucx_library` or, if that is
/// empty, from where the system has it. Ranks exchange its addresses and then connect it.
/// Errors: KoloError(kConfig) if the build has none; those of `UcxTransport`.
std::unique_ptr<NetworkTransport> open_network(int rank, int world_size,
                                               const std::string& ucx_library);

}  // namespace kolo
