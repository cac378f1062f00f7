#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "comm/base/clock.h"
#include "comm/base/unique_handle.h"

namespace kolo {

/// How much memory this process can still take before the kernel swaps or ends processes.
struct AvailableMemory {
  std::size_t bytes = 0;  ///< The largest value: the system does not say.
  std::string limit;      ///< What sets the limit, for errors: "this machine", a control group.
};

/// The least of what the machine has available and what each control group of this process, and
/// each of the group's parents, leaves of its limit. Knows both versions of control groups. Memory
/// that holds cached files counts as available, since the kernel gives it back.
///
/// `root` replaces "/" in tests. Threads: any. Cost: reads a few files of the kernel.
AvailableMemory available_memory(const std::filesystem::path& root = "/");

/// Memory that processes of one node share: a nameless file (`memfd`) of fixed, sealed size and its
/// mapping here. There is no name to clash, to leak or to open by others, and nobody who holds the
/// descriptor can shrink it under a reader. Address space is reserved at once, memory only by
/// `commit`. The mapping is not passed on to forked children.
///
/// Memory comes in huge pages where the kernel has them. By itself it takes them only if
/// `shmem_enabled` says so; a range then ends with the huge page it ends in, which the next range
/// fills, so an arena wastes less than one. Elsewhere those that lie wholly in a range are asked
/// for one by one, and nothing is wasted. Who commits touches first, so pages lie on the NUMA node
/// of the owner.
///
/// Threads: one; what the memory holds is the users' business.
class Arena {
 public:
  /// Makes a new one. Units: bytes, a multiple of the page size.
  /// Errors: KoloError(kResources).
  static Arena create(std::size_t bytes);

  /// Maps one that a peer made. Errors: KoloError(kAuth) if it is not sealed or has another size.
  static Arena adopt(FileDescriptor fd, std::size_t bytes);

  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  int fd() const { return fd_.get(); }
  std::byte* data() const { return memory_.data(); }
  std::size_t size() const { return memory_.size(); }

  /// Makes a range real memory, so that touching it cannot fail later. A range that is real already
  /// costs a look-up. That of many GB can take seconds: `pause` is called now and then. `root` is
  /// for tests (see `available_memory`).
  /// Errors: KoloError(kResources) that names the bytes needed, those available and what limits
  ///         them.
  void commit(std::size_t offset, std::size_t bytes, const Pause& pause = {},
              const std::filesystem::path& root = "/");

 private:
  Arena(FileDescriptor fd, std::size_t bytes);
  /// Writes to the pages of a range, in the kernel, so that what cannot be had is an error here and
  /// no SIGBUS later. Unlike `fallocate` it takes huge pages. Returns false where it cannot.
  bool populate(std::size_t offset, std::size_t bytes);
  bool populate_in_parts(std::size_t offset, std::size_t bytes, const Pause& pause,
                         const std::filesystem::path& root);
  /// Pages of the range that are there already need nothing. Errors: as `commit`.
  void check_available(std::size_t offset, std::size_t bytes,
                       const std::filesystem::path& root) const;
  bool is_committed(std::size_t begin, std::size_t end) const;
  void set_committed(std::size_t begin, std::size_t end);

  FileDescriptor fd_;
  std::span<std::byte> memory_;
  std::map<std::size_t, std::size_t> committed_;  // ends of ranges that do not touch, by beginning
};

}  // namespace kolo
