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

/// Sockets between processes of one machine, named in the abstract namespace: there is no file, and
/// the name disappears with its owner. Packets keep their boundaries and may carry descriptors. All
/// sockets are non-blocking and close-on-exec. Threads: any.
/// Errors: KoloError(kIo, kResources, or kTimeout when the deadline passes).

/// Longest name that fits a socket address.
inline constexpr std::size_t kLongestSocketName = 106;

FileDescriptor listen_local(std::string_view name, int backlog);

/// Retries until a socket listens under that name.
FileDescriptor connect_local(std::string_view name, TimePoint deadline);

FileDescriptor accept_local(int listener, TimePoint deadline);

/// Whether the process at the other end has this process's effective user id.
bool is_same_user(int socket);

struct Packet {
  std::string bytes;
  std::vector<FileDescriptor> descriptors;
};

/// Returns false if the other end has hung up.
bool send_packet(int socket, std::string_view bytes, std::span<const int> descriptors = {});

/// Waits for the next packet and takes at most `longest` bytes and four descriptors of it. Empty if
/// the other end has hung up.
std::optional<Packet> receive_packet(int socket, std::size_t longest, TimePoint deadline);

}  // namespace kolo
