#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace kolo {

/// A word of a process, by which others find out whether they can read its memory.
struct MemoryToken {
  std::uint64_t address = 0;
  std::uint64_t value = 0;
};

/// The memory of another process of the same user on this machine, read by one system call and one
/// copy (Linux's "cross memory attach"). What may forbid it: Yama (kernel.yama.ptrace_scope), the
/// system-call filter of a container, another namespace of process ids. So ask `holds` first.
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

 private:
  pid_t process_ = 0;
};

}  // namespace kolo
