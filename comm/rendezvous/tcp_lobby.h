#pragma once

#include <map>

#include "comm/base/unique_handle.h"
#include "comm/rendezvous/tcp_connection.h"
#include "comm/rendezvous/tcp_options.h"

namespace kolo {

/// Waits at `listener`, as rank 0, until ranks 1 to size - 1 have joined, and welcomes them.
/// Returns their connections by rank.
///
/// The port is open to the network and the job's id no secret, so nothing that a connection says or
/// leaves unsaid ends the start-up. Silent or half-open connections, bytes that are no hello, other
/// jobs, ranks of another world size or version and ranks that have joined already are refused,
/// with the reason where they can read it, and with a line in the log. There is a limit for silent
/// connections, above which the oldest is dropped.
///
/// Threads: any one; blocks.
/// Errors:  the same on all ranks that have joined:
///          KoloError(kTimeout) naming the ranks that did not join within `options.timeout`;
///          KoloError(kConfig) likewise if some of them came with another world size or version,
///          which they were told at once;
///          KoloError(kResources) if the ranks alone need more descriptors than rank 0 may open.
std::map<int, TcpConnection> await_members(FileDescriptor listener, const TcpOptions& options);

}  // namespace kolo
