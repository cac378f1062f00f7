#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "comm/base/dtype.h"
#include "comm/device/copy_lane.h"

namespace kolo {

/// Device memory for the parts of a rank that has joined, which has none of its own. It is kept
/// from one operation to the next: to allocate may wait for the device, which others may wait for.
///
/// Threads: the engine's.
class StandInMemory {
 public:
  /// What one operation has, until it lets go of it.
  class Block {
   public:
    Block(Device& device, std::size_t bytes);

    std::byte* data() const { return memory_.data(); }
    std::size_t bytes() const { return memory_.bytes(); }

    /// Enqueues `count` elements that change no result of `op`. See fill_neutral.
    void fill(Stream& up, std::size_t count, DType dtype, ReduceOp op);
    /// After them.
    const Event& filled() const { return *filled_; }

   private:
    DeviceMemory memory_;
    DeviceMemory pattern_;  // pinned: the beginning of what `fill` writes, again and again
    std::unique_ptr<Event> filled_;
  };

  /// `copies` outlives it.
  explicit StandInMemory(CopyLane& copies) : copies_(copies) {}

  CopyLane& copies() { return copies_; }
  /// At least `bytes` that no operation has. Errors: KoloError(kResources).
  std::shared_ptr<Block> take(std::size_t bytes);

 private:
  CopyLane& copies_;
  std::vector<std::shared_ptr<Block>> blocks_;
};

}  // namespace kolo
