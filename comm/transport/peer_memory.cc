#include "comm/transport/peer_memory.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
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
  // Both calls take `local` as non-const memory.
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
                   .what = std::string(verb) + " memory of rank " + std::to_string(peer) + ": " +
                           std::strerror(failed)});
}

namespace {

// PAGEMAP_SCAN of Linux 6.7, which older headers do not define. Source: Linux,
// include/uapi/linux/fs.h.
struct PageRegion {
  std::uint64_t start = 0, end = 0, categories = 0;
};
struct PageScan {
  std::uint64_t size = sizeof(PageScan);
  std::uint64_t flags = 0;
  std::uint64_t start = 0, end = 0;
  std::uint64_t walk_end = 0;
  std::uint64_t regions = 0;  // the address of a PageRegion
  std::uint64_t region_count = 0;
  std::uint64_t max_pages = 0;
  std::uint64_t category_inverted = 0, category_mask = 0, category_anyof_mask = 0;
  std::uint64_t return_mask = 0;
};
constexpr unsigned long kPageMapScan = _IOWR('f', 16, PageScan);
constexpr std::uint64_t kIsHuge = 1U << 6;

constexpr std::uint64_t kSmallPage = 4096;
/// Bytes that a query examines in advance, because neighbouring memory is usually queried next.
constexpr std::uint64_t kLookAhead = std::uint64_t{64} << 20;

}  // namespace

PageMap::PageMap() : file_(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) {}

bool PageMap::are_huge(std::span<const std::byte> memory) {
  const auto begin = reinterpret_cast<std::uint64_t>(memory.data());
  const Range range{.begin = begin / kSmallPage * kSmallPage,
                    .end = (begin + memory.size() + kSmallPage - 1) / kSmallPage * kSmallPage};
  if (huge_.holds(range)) return true;
  if (small_.holds(range)) return false;
  // A scan is fast in huge pages, but slow in small pages.
  if (huge_part(range).holds(range)) {
    huge_ = huge_part({range.begin, range.begin + kLookAhead});
    return true;
  }
  small_ = range;
  return false;
}

PageMap::Range PageMap::huge_part(const Range& range) const {
  PageRegion first;
  PageScan scan{.start = range.begin,
                .end = range.end,
                .regions = reinterpret_cast<std::uint64_t>(&first),
                .region_count = 1,
                .category_mask = kIsHuge,
                .return_mask = kIsHuge};
  const int found = file_ ? ::ioctl(file_.get(), kPageMapScan, &scan) : -1;
  if (found < 0) return range;
  return found > 0 && first.start == range.begin ? Range{first.start, first.end} : Range{};
}

}  // namespace kolo
