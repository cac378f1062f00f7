#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "comm/rendezvous/rendezvous.h"

namespace kolo {

/// Endpoints, by rank, of a job whose ranks are threads of this process.
///
/// Threads: one per endpoint; `all_gather` blocks its thread until all have called it.
/// Errors:  UsageError if `size` is below 1. `all_gather` throws KoloError(kTimeout) naming the
///          ranks that did not come within `timeout`, KoloError(kPeerLost) if one was destroyed
///          meanwhile; later calls fail with the same error.
std::vector<std::unique_ptr<Rendezvous>> make_memory_rendezvous(int size,
                                                                std::chrono::milliseconds timeout);

}  // namespace kolo
