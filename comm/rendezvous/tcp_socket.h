#pragma once

#include <cstdint>
#include <string>

#include "comm/base/clock.h"
#include "comm/base/unique_handle.h"

namespace kolo {

/// Sockets for the rendezvous: IPv4 and IPv6, non-blocking, close-on-exec. Threads: any.

/// Listens at `port`; 0 means any free port. If `host` is "localhost" or a loopback address, other
/// machines cannot reach the port. Otherwise the socket listens on all interfaces, because a
/// machine's own name often resolves to a loopback address. Errors: KoloError(kIo) with the port.
FileDescriptor listen_on(const std::string& host, std::uint16_t port);

/// Returns the port of a listening socket.
std::uint16_t port_of(int listener);

/// Accepts the next waiting connection; returns an invalid descriptor if there is none. Errors:
/// KoloError(kResources) if the process has no descriptor left.
FileDescriptor accept_from(int listener);

/// Tries to connect to each address of `host` once. If none answers before `deadline`, returns an
/// invalid descriptor and sets `why` to the reason.
FileDescriptor connect_to(const std::string& host, std::uint16_t port, TimePoint deadline,
                          std::string& why);

/// Returns "address:port" of the other end; "unknown" if it is not connected.
std::string peer_of(int socket);

}  // namespace kolo
