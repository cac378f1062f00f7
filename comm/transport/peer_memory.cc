#include "comm/transport/peer_memory.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "comm/base/error.h"

namespace kolo {

PeerMemory::PeerMemory(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) process_ = peer.pid;
}

PeerMemory PeerMemory::of_this_process() {
  PeerMemory self;
  self.process_ = ::getpid();
  return self;
}

bool PeerMemory::holds(const MemoryToken& token) const {
  std::uint64_t value = 0;
  return token.address != 0 &&
         read(token.address, std::as_writable_bytes(std::span(&value, 1))) == 0 &&
         value == token.value;
}

int PeerMemory::read(std::uint64_t address, std::span<std::byte> to) const {
  return move(::process_vm_readv, address, to.data(), to.size());
}

int PeerMemory::write(std::uint64_t address, std::span<const std::byte> from) const {
  // The call takes what it reads as it takes what it writes.
  return move(::process_vm_writev, address, const_cast<std::byte*>(from.data()), from.size());
}

int PeerMemory::move(Call call, std::uint64_t address, std::byte* data, std::size_t bytes) const {
  if (process_ <= 0) return ESRCH;
  for (std::size_t at = 0; at < bytes;) {
    const iovec local{.iov_base = data + at, .iov_len = bytes - at};
    const iovec remote{.iov_base = reinterpret_cast<void*>(address + at), .iov_len = bytes - at};
    const ssize_t moved = call(process_, &local, 1, &remote, 1, 0);
    if (moved < 0) return errno;
    if (moved == 0) return EFAULT;
    at += static_cast<std::size_t>(moved);
  }
  return 0;
}

void throw_memory_error(int rank, int peer, std::string_view verb, int failed) {
  throw KoloError({.code = ErrorCode::kPeerLost,
                   .rank = rank,
                   .peer = peer,
                   .verb = {},
                   .bucket = {},
                   .what = std::string(verb) + " memory of rank " + std::to_string(peer) + ": " +
                           std::strerror(failed)});
}

}  // namespace kolo
