#pragma once

#include <map>

#include "comm/base/unique_handle.h"
#include "comm/rendezvous/tcp_connection.h"
#include "comm/rendezvous/tcp_options.h"

namespace kolo {

/// Waits at `listener`, as rank 0, until ranks 1 to size - 1 have joined, and welcomes them.
/// Returns their connections by rank.
///
/// Whoever is not a rank of this job is dropped with a line in the log and disturbs nobody: silent
/// or half-open connections, bytes that are no hello, other jobs, a rank that has joined already.
///
/// Threads: any one; blocks.
/// Errors:  the same on all ranks that are there:
///          KoloError(kConfig) naming the ranks that were started with another world size, or speak
///          another version of the protocol;
///          KoloError(kTimeout) naming the ranks that did not join within `options.timeout`;
///          KoloError(kResources) if rank 0 runs out of descriptors.
std::map<int, TcpConnection> await_members(FileDescriptor listener, const TcpOptions& options);

}  // namespace kolo
