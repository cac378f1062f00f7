#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "comm/base/unique_handle.h"

namespace kolo {

/// A word of a process, by which others find out whether they can read its memory.
struct MemoryToken {
  std::uint64_t address = 0;
  std::uint64_t value = 0;
};

/// The memory of another process of the same user on this machine, read or written by one system
/// call and one copy (Linux's "cross memory attach"). Yama (kernel.yama.ptrace_scope), the
/// system-call filter of a container or another namespace of process ids may forbid it, so ask
/// `holds` first.
///
/// Threads: any.
class PeerMemory {
 public:
  /// Of nobody.
  PeerMemory() = default;
  /// Of the process at the other end of a connected Unix socket.
  explicit PeerMemory(int socket);
  static PeerMemory of_this_process();

  /// Whether it can be read, and it is the process that has told of this token.
  bool holds(const MemoryToken& token) const;
  /// Fills `to` with what begins at `address` there. Returns 0, or an errno.
  int read(std::uint64_t address, std::span<std::byte> to) const;
  /// The reverse. Who may read may write, too, but for pages that are write-protected.
  int write(std::uint64_t address, std::span<const std::byte> from) const;

 private:
  /// process_vm_readv or process_vm_writev.
  using Call = decltype(&::process_vm_readv);

  int move(Call call, std::uint64_t address, std::byte* data, std::size_t bytes) const;

  pid_t process_ = 0;
};

/// "reading", or "writing", memory of `peer` failed with this errno. Throws KoloError(kPeerLost).
[[noreturn]] void throw_memory_error(int rank, int peer, std::string_view verb, int failed);

/// The pages of this process's memory, as far as Linux tells (since 6.7). An answer is a hint:
/// pages change, and the last ones that were asked for are remembered.
///
/// Threads: one at a time.
class PageMap {
 public:
  PageMap();

  /// Whether a range is all in huge pages, present and mapped as such. Where Linux does not tell:
  /// true. Takes about half a microsecond, and nothing in a range that is remembered.
  bool are_huge(std::span<const std::byte> memory);

 private:
  struct Range {
    std::uint64_t begin = 0, end = 0;
    bool holds(const Range& other) const { return begin <= other.begin && other.end <= end; }
  };

  /// The part from its beginning on that is in huge pages; all of it if Linux does not tell.
  Range huge_part(const Range& range) const;

  FileDescriptor file_;
  Range huge_, small_;  // remembered
};

}  // namespace kolo
