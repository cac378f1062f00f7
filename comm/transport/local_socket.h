#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/clock.h"
#include "comm/base/unique_handle.h"

namespace kolo {

/// Sockets between processes of one machine. Their names are in the abstract namespace: there is no
/// file, and a name disappears with the process that listens. Packets keep their boundaries and may
/// carry descriptors. All sockets are non-blocking and close-on-exec. Threads: any.
/// Errors: KoloError: kIo, kResources, or kTimeout after the deadline.

/// Longest name, in bytes, that fits in a socket address.
inline constexpr std::size_t kLongestSocketName = 106;

FileDescriptor listen_local(std::string_view name, int backlog);

/// Connects to the socket with this name; retries until a process listens or the deadline passes.
FileDescriptor connect_local(std::string_view name, TimePoint deadline);

FileDescriptor accept_local(int listener, TimePoint deadline);

/// Whether the process at the other end has this process's effective user id.
bool is_same_user(int socket);

struct Packet {
  std::string bytes;
  std::vector<FileDescriptor> descriptors;
};

/// Sends one packet. Returns false if the other end has closed the connection.
bool send_packet(int socket, std::string_view bytes, std::span<const int> descriptors = {});

/// Waits for the next packet and returns at most its first `longest` bytes and four descriptors.
/// Returns nothing if the other end has closed the connection.
std::optional<Packet> receive_packet(int socket, std::size_t longest, TimePoint deadline);

}  // namespace kolo
