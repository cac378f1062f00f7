#pragma once

#include <cstddef>
#include <span>

#include "comm/base/unique_handle.h"

namespace kolo {

/// Memory that processes of one node share: a nameless file (`memfd`) of fixed, sealed size and its
/// mapping here. There is no name to clash, to leak or to open by others, and nobody who holds the
/// descriptor can shrink it under a reader. Address space is reserved at once, memory only by
/// `commit`. The mapping is not passed on to forked children.
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

  /// Makes a range real memory, so that touching it cannot fail later.
  /// Errors: KoloError(kResources) that names the bytes needed and what is available.
  void commit(std::size_t offset, std::size_t bytes);

 private:
  Arena(FileDescriptor fd, std::size_t bytes);

  FileDescriptor fd_;
  std::span<std::byte> memory_;
};

}  // namespace kolo
