#include "comm/transport/peer_memory.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

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
  if (process_ <= 0) return ESRCH;
  while (!to.empty()) {
    const iovec local{.iov_base = to.data(), .iov_len = to.size()};
    const iovec remote{.iov_base = reinterpret_cast<void*>(address), .iov_len = to.size()};
    const ssize_t bytes = ::process_vm_readv(process_, &local, 1, &remote, 1, 0);
    if (bytes < 0) return errno;
    if (bytes == 0) return EFAULT;
    to = to.subspan(static_cast<std::size_t>(bytes));
    address += static_cast<std::uint64_t>(bytes);
  }
  return 0;
}

}  // namespace kolo
