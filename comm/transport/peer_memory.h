#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "comm/base/unique_handle.h"

namespace kolo {

/// The address and value of a variable in a process. Other processes read it to test whether they
/// can access that process's memory.
struct MemoryToken {
  std::uint64_t address = 0;
  std::uint64_t value = 0;
};

/// The memory of another process of the same user on this machine. Each read or write is one system
/// call and one copy ("cross memory attach" of Linux). Yama (kernel.yama.ptrace_scope), the
/// system-call filter of a container, or another namespace of process ids may forbid it, so test
/// with `holds` first.
///
/// Threads: any.
class PeerMemory {
 public:
  /// Refers to no process: all calls fail.
  PeerMemory() = default;
  /// Refers to the process at the other end of a connected Unix socket.
  explicit PeerMemory(int socket);
  static PeerMemory of_this_process();

  /// Whether this process can read the peer's memory and finds the `token` that the peer announced.
  bool holds(const MemoryToken& token) const;
  /// Fills `to` from `address` in the peer's memory. Returns 0 or an errno.
  int read(std::uint64_t address, std::span<std::byte> to) const;
  /// Writes `from` to `address` in the peer's memory. A process that can read can also write,
  /// except to write-protected pages. Returns 0 or an errno.
  int write(std::uint64_t address, std::span<const std::byte> from) const;

 private:
  /// The type of process_vm_readv and process_vm_writev.
  using Call = decltype(&::process_vm_readv);

  int move(Call call, std::uint64_t address, std::byte* data, std::size_t bytes) const;

  pid_t process_ = 0;
};

/// Throws KoloError(kPeerLost) with the text that `verb` ("reading" or "writing") memory of `peer`
/// failed with the errno `failed`.
[[noreturn]] void throw_memory_error(int rank, int peer, std::string_view verb, int failed);

/// The page sizes of this process's memory, as far as Linux reports them (since 6.7). Results are
/// hints, because pages change and the results of the last queries are cached.
///
/// Threads: one at a time.
class PageMap {
 public:
  PageMap();

  /// Whether all of `memory` is in huge pages that are present and mapped as huge; true if Linux
  /// does not report it. Takes about half a microsecond, or no time for a cached range.
  bool are_huge(std::span<const std::byte> memory);

 private:
  struct Range {
    std::uint64_t begin = 0, end = 0;
    bool holds(const Range& other) const { return begin <= other.begin && other.end <= end; }
  };

  /// Returns the leading part of the range in huge pages; all of it if Linux does not report it.
  Range huge_part(const Range& range) const;

  FileDescriptor file_;
  Range huge_, small_;  // results of the last queries
};

}  // namespace kolo
