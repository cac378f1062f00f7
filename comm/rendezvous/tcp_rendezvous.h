#pragma once

#include <memory>

#include "comm/base/unique_handle.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/tcp_options.h"

namespace kolo {

/// A rendezvous that needs no launcher but the address of rank 0: rank 0 listens, the others
/// connect, and the connections are kept for the exchanges. Not encrypted: for networks that the
/// job trusts.
///
/// Blocks until all ranks have joined.
/// Threads: one. Errors: UsageError if rank or size are out of range; those of `TcpLobby`, the
///          same on every rank; KoloError(kIo) if rank 0 cannot listen, KoloError(kTimeout) with
///          the cause if rank 0 cannot be reached.
std::unique_ptr<Rendezvous> make_tcp_rendezvous(const TcpOptions& options);

/// Rank 0 with a socket that listens already, see `listen_on`: so that others can learn its port.
std::unique_ptr<Rendezvous> make_tcp_rendezvous(const TcpOptions& options, FileDescriptor listener);

}  // namespace kolo
