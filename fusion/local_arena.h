#pragma once

#include <cstddef>

#include "comm/base/mutex.h"
#include "fusion/arena.h"

namespace kolo {

/// The part of a rank's arena that the rank divides up by itself: for the groups that it is in and
/// for tensors of its user. Offsets count from the beginning of the arena. Threads: any.
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
