#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "comm/base/aligned_memory.h"

namespace kolo {

/// float32 numbers that belong to tensors and outlive steps, such as residuals. They lie in one
/// piece of memory, indexed by tensor and never by bucket, so plans may change.
///
/// Every tensor has two rooms, the current one and a pending one. A step writes the pending room
/// and either accepts it, which swaps the rooms, or drops it; then no bit has changed.
///
/// Threads: one thread per tensor at a time.
class ResidualArena {
 public:
  /// All current rooms are zero.
  explicit ResidualArena(std::span<const std::size_t> counts);

  std::size_t tensors() const { return tensors_.size(); }
  std::size_t count(std::size_t tensor) const { return tensors_.at(tensor).count; }
  /// Size of all rooms.
  std::size_t bytes() const { return 2 * floats_ * sizeof(float); }

  std::span<float> current(std::size_t tensor) { return room(tensor, tensors_.at(tensor).current); }
  std::span<const float> current(std::size_t tensor) const {
    return room(tensor, tensors_.at(tensor).current);
  }
  /// The pending room; unspecified until a step writes it.
  std::span<float> pending(std::size_t tensor) {
    return room(tensor, 1 - tensors_.at(tensor).current);
  }
  void accept(std::size_t tensor) { tensors_.at(tensor).current ^= 1; }

 private:
  struct Tensor {
    std::size_t offset =
        0;  ///< Offset of both rooms, in floats from the start of their half of the memory.
    std::size_t count = 0;
    std::size_t current = 0;  ///< 0 or 1.
  };

  std::span<float> room(std::size_t tensor, std::size_t half) const;

  std::vector<Tensor> tensors_;
  std::size_t floats_ = 0;  ///< Size of one half.
  AlignedMemory memory_;
};

}  // namespace kolo
