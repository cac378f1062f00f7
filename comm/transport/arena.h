#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "comm/base/clock.h"
#include "comm/base/unique_handle.h"

namespace kolo {

/// The amount of memory that this process can take before the kernel swaps or kills processes.
struct AvailableMemory {
  std::size_t bytes = 0;  ///< The largest value: unknown.
  std::string limit;      ///< The source of the limit, for errors: "this machine", or a control
                          ///< group.
};

/// The minimum of the machine's available memory and of the remaining limits of this process's
/// control groups and their parents. Supports both versions of control groups. Cached files count
/// as available, since the kernel can drop them.
///
/// `root` replaces "/" in tests. Threads: any. Cost: reads a few files of the kernel.
AvailableMemory available_memory(const std::filesystem::path& root = "/");

/// Memory shared by processes of one node: an anonymous file (`memfd`) of fixed, sealed size, and
/// its mapping in this process. No name can clash, leak or be opened by others, and no holder of
/// the descriptor can shrink the file under a reader. Address space is reserved at once, memory
/// only by `commit`. Forked children do not inherit the mapping.
///
/// Memory uses huge pages where the kernel has them. If `shmem_enabled` makes the kernel use them
/// by itself, a range ends with the huge page it ends in, which the next range fills, so an arena
/// wastes less than one. Otherwise the huge pages that lie entirely in a range are requested one by
/// one, without waste. The committing process touches the pages first, so they lie on its NUMA
/// node.
///
/// Threads: one. Users synchronise access to the contents.
class Arena {
 public:
  /// Creates an arena. Units: bytes, a multiple of the page size.
  /// Errors: KoloError(kResources).
  static Arena create(std::size_t bytes);

  /// Maps an arena that a peer created. Errors: KoloError(kAuth) if it is not sealed or has another
  /// size.
  static Arena adopt(FileDescriptor fd, std::size_t bytes);

  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  int fd() const { return fd_.get(); }
  std::byte* data() const { return memory_.data(); }
  std::size_t size() const { return memory_.size(); }

  /// Allocates the memory of a range, so that accesses cannot fail later. A range that is already
  /// committed costs a look-up. Many GB can take seconds, in which `pause` is called repeatedly.
  /// `root` is for tests (see `available_memory`).
  /// Errors: KoloError(kResources) with the bytes needed, the bytes available and the source of the
  ///         limit.
  void commit(std::size_t offset, std::size_t bytes, const Pause& pause = {},
              const std::filesystem::path& root = "/");

 private:
  Arena(FileDescriptor fd, std::size_t bytes);
  /// Populates the pages of a range in the kernel, so that missing memory is an error now and no
  /// SIGBUS later. Unlike `fallocate` it uses huge pages. Returns false where unsupported.
  bool populate(std::size_t offset, std::size_t bytes);
  bool populate_in_parts(std::size_t offset, std::size_t bytes, const Pause& pause,
                         const std::filesystem::path& root);
  /// Pages of the range that already exist need no memory. Errors: as `commit`.
  void check_available(std::size_t offset, std::size_t bytes,
                       const std::filesystem::path& root) const;
  bool is_committed(std::size_t begin, std::size_t end) const;
  void set_committed(std::size_t begin, std::size_t end);

  FileDescriptor fd_;
  std::span<std::byte> memory_;
  std::map<std::size_t, std::size_t> committed_;  // disjoint ranges: beginning -> end
};

}  // namespace kolo
