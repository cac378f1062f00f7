#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "comm/base/unique_handle.h"

namespace kolo {

/// A word in a process, by which other processes test whether they can read its memory.
struct MemoryToken {
  std::uint64_t address = 0;
  std::uint64_t value = 0;
};

/// The memory of another process of the same user on this machine, read or written by one system
/// call and one copy (Linux's "cross memory attach"). Yama (kernel.yama.ptrace_scope), the
/// system-call filter of a container, or another namespace of process ids may forbid it, so ask
/// `holds` first.
///
/// Threads: any.
class PeerMemory {
 public:
  /// No peer.
  PeerMemory() = default;
  /// The process at the other end of a connected Unix socket.
  explicit PeerMemory(int socket);
  static PeerMemory of_this_process();

  /// Whether its memory can be read and holds this token, as announced by the process.
  bool holds(const MemoryToken& token) const;
  /// Fills `to` from `address` in the peer's memory. Returns 0 or an errno.
  int read(std::uint64_t address, std::span<std::byte> to) const;
  /// Writes `from` to `address` there. Permission to read includes writing, except for
  /// write-protected pages. Returns 0 or an errno.
  int write(std::uint64_t address, std::span<const std::byte> from) const;

 private:
  /// process_vm_readv or process_vm_writev.
  using Call = decltype(&::process_vm_readv);

  int move(Call call, std::uint64_t address, std::byte* data, std::size_t bytes) const;

  pid_t process_ = 0;
};

/// Throws KoloError(kPeerLost): `verb` ("reading" or "writing") memory of `peer` failed with this
/// errno.
[[noreturn]] void throw_memory_error(int rank, int peer, std::string_view verb, int failed);

/// The page sizes of this process's memory, as far as Linux reports them (since 6.7). The result is
/// a hint: pages change, and the last queried ones are cached.
///
/// Threads: one at a time.
class PageMap {
 public:
  PageMap();

  /// Whether a whole range consists of huge pages that are present and mapped as such; true where
  /// Linux does not report it. Takes about half a microsecond, or no time for a cached range.
  bool are_huge(std::span<const std::byte> memory);

 private:
  struct Range {
    std::uint64_t begin = 0, end = 0;
    bool holds(const Range& other) const { return begin <= other.begin && other.end <= end; }
  };

  /// The leading part of the range that is in huge pages; all of it where Linux does not report it.
  Range huge_part(const Range& range) const;

  FileDescriptor file_;
  Range huge_, small_;  // cached
};

}  // namespace kolo
