#pragma once

#include <cstddef>
#include <map>
#include <string_view>

#include "comm/base/mutex.h"

namespace kolo {

/// Allocates offsets of buckets in the arena, not memory. Ranks that allocate and release in the
/// same order get the same offsets, so a bucket has the same offset in every rank's arena. Uses
/// first fit. Threads: one.
class ArenaAllocator {
 public:
  /// Errors name `user`, which uses the arena, and `option`, which limits its size.
  explicit ArenaAllocator(std::size_t capacity_bytes, std::string_view user = "a bucket",
                          std::string_view option = "arena_bytes (KOLO_ARENA_BYTES)");

  /// Errors: KoloError(kResources) with the requested and the free bytes, and the option to raise.
  std::size_t allocate(std::size_t bytes);
  /// Before: `allocate` returned `offset`, and it has not been released.
  void release(std::size_t offset);

  std::size_t capacity() const { return capacity_; }
  std::size_t used() const;

 private:
  std::size_t capacity_;
  std::string_view user_, option_;
  std::map<std::size_t, std::size_t> used_;  // offset -> bytes
};

/// The part of a rank's arena that the rank allocates independently of other ranks, for its groups
/// and for tensors of the program. Offsets are in bytes from the start of the arena. Threads: any.
class LocalArena {
 public:
  LocalArena(std::size_t first_byte, std::size_t end_byte)
      : first_byte_(first_byte),
        allocator_(end_byte - first_byte, "a group or tensor",
                   "group_arena_bytes (KOLO_GROUP_ARENA_BYTES)") {}

  /// Errors: as `ArenaAllocator::allocate`.
  std::size_t allocate(std::size_t bytes) {
    const MutexLock lock(mutex_);
    return first_byte_ + allocator_.allocate(bytes);
  }
  void release(std::size_t offset) {
    const MutexLock lock(mutex_);
    allocator_.release(offset - first_byte_);
  }

 private:
  const std::size_t first_byte_;
  Mutex mutex_;
  ArenaAllocator allocator_ KOLO_GUARDED_BY(mutex_);
};

}  // namespace kolo
