#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "comm/base/clock.h"
#include "comm/base/mutex.h"
#include "comm/base/unique_handle.h"

namespace kolo {

/// The amount of memory that this process can allocate before the kernel swaps or kills processes.
struct AvailableMemory {
  std::size_t bytes = 0;  ///< In bytes; the largest value means unknown.
  std::string limit;      ///< What imposes the limit, for error messages: "this machine", or the
                          ///< name of a control group.
};

/// Returns the minimum of the machine's available memory and the remaining limits of this process's
/// control groups and their parents, in either version of control groups. Cached files count as
/// available, because the kernel can drop them.
///
/// Tests pass another `root`. Threads: any. Cost: reads a few files of the kernel.
AvailableMemory available_memory(const std::filesystem::path& root = "/");

/// Memory that processes of one node share: an anonymous file (`memfd`) of fixed, sealed size, and
/// its mapping in this process. The file has no name that other processes could open, and no
/// process that holds its descriptor can change its size. Address space is reserved at
/// construction; memory is allocated only by `commit`. Forked children do not inherit the mapping.
///
/// Memory is in huge pages where the kernel supports them. If `shmem_enabled` makes the kernel use
/// huge pages by default, `commit` allocates whole huge pages and the next range uses the rest of
/// the last one, so an arena wastes less than one huge page. Otherwise only huge pages that lie
/// entirely in a range are requested. The committing process touches the pages first, so they are
/// on its NUMA node.
///
/// Threads: any for `commit`, also concurrently. Users synchronise access to the contents.
class Arena {
 public:
  /// Creates an arena. `bytes` is a multiple of the page size.
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

  /// Allocates the memory of a range, so that later accesses cannot fail. A range that is already
  /// committed costs one look-up. Many GB can take seconds; `pause` is called repeatedly meanwhile.
  /// Tests pass another `root` (see `available_memory`).
  /// Errors: KoloError(kResources) with the bytes needed, the bytes available and the limit's
  /// source.
  void commit(std::size_t offset, std::size_t bytes, const Pause& pause = {},
              const std::filesystem::path& root = "/");

 private:
  Arena(FileDescriptor fd, std::size_t bytes);
  /// Allocates the pages of a range, so that missing memory is an error now instead of a SIGBUS
  /// later. Unlike `fallocate` it uses huge pages. Returns false if the kernel lacks support.
  bool populate(std::size_t offset, std::size_t bytes);
  bool populate_in_parts(std::size_t offset, std::size_t bytes, const Pause& pause,
                         const std::filesystem::path& root);
  /// Checks that the missing pages of the range fit in the available memory. Errors: as `commit`.
  void check_available(std::size_t offset, std::size_t bytes,
                       const std::filesystem::path& root) const;

  class Ranges {  // of bytes; any thread
   public:
    bool contain(std::size_t begin, std::size_t end) const KOLO_EXCLUDES(mutex_);
    void add(std::size_t begin, std::size_t end) KOLO_EXCLUDES(mutex_);

   private:
    mutable Mutex mutex_;
    std::map<std::size_t, std::size_t> ranges_ KOLO_GUARDED_BY(mutex_);  // disjoint: start -> end
  };

  FileDescriptor fd_;
  std::span<std::byte> memory_;
  std::unique_ptr<Ranges> committed_ = std::make_unique<Ranges>();
};

}  // namespace kolo
