#pragma once

#include <cstdint>
#include <string>

#include "comm/base/clock.h"
#include "comm/base/unique_handle.h"

namespace kolo {

/// Sockets for the rendezvous: IPv4 and IPv6, never blocking, closed on exec. Threads: any.

/// Listens at `port` (0: any free one). A `host` that is "localhost" or a loopback address keeps
/// the port invisible to other machines; any other listens on all interfaces, because a machine's
/// own name often resolves to a loopback address on that machine. Errors: KoloError(kIo) naming the
/// port.
FileDescriptor listen_on(const std::string& host, std::uint16_t port);

/// The port that a listening socket has.
std::uint16_t port_of(int listener);

/// The next waiting connection; an invalid descriptor if there is none (any more).
/// Errors: KoloError(kResources) if no descriptor is left.
FileDescriptor accept_from(int listener);

/// Tries every address of `host` once. Returns an invalid descriptor, and why, if none answers
/// before `deadline`.
FileDescriptor connect_to(const std::string& host, std::uint16_t port, TimePoint deadline,
                          std::string& why);

/// "address:port" of the other end; "unknown" if it has gone.
std::string peer_of(int socket);

}  // namespace kolo
