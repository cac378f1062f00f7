#pragma once

#include <cstdint>
#include <string>

#include "comm/base/clock.h"
#include "comm/base/unique_handle.h"

namespace kolo {

/// Sockets for the rendezvous: IPv4 and IPv6, never blocking, closed on exec. Threads: any.

/// Listens at `port` (0: any free port). If `host` is "localhost" or a loopback address, other
/// machines cannot reach the port; otherwise it listens on all interfaces, because a machine's own
/// name often resolves to a loopback address there. Errors: KoloError(kIo) naming the port.
FileDescriptor listen_on(const std::string& host, std::uint16_t port);

/// The port of a listening socket.
std::uint16_t port_of(int listener);

/// The next waiting connection; an invalid descriptor if there is none, or no longer one.
/// Errors: KoloError(kResources) if no descriptor is left.
FileDescriptor accept_from(int listener);

/// Tries every address of `host` once. If none answers before `deadline`, returns an invalid
/// descriptor and the reason.
FileDescriptor connect_to(const std::string& host, std::uint16_t port, TimePoint deadline,
                          std::string& why);

/// "address:port" of the other end; "unknown" if it is gone.
std::string peer_of(int socket);

}  // namespace kolo
