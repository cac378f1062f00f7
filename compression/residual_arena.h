#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "comm/base/aligned_memory.h"

namespace kolo {

/// float32 numbers that belong to tensors and outlive steps, such as residuals: in one piece of
/// memory, indexed by the tensor's number and never by a bucket, so that plans may change.
///
/// Every tensor has two rooms, the current one and a pending one. A step writes the pending room,
/// and either accepts it, which swaps the rooms, or leaves it: then not a bit has changed.
///
/// Threads: one thread per tensor at a time.
class ResidualArena {
 public:
  /// All current rooms are zero.
  explicit ResidualArena(std::span<const std::size_t> counts);

  std::size_t tensors() const { return tensors_.size(); }
  std::size_t count(std::size_t tensor) const { return tensors_.at(tensor).count; }
  /// What all rooms take.
  std::size_t bytes() const { return 2 * floats_ * sizeof(float); }

  std::span<float> current(std::size_t tensor) { return room(tensor, tensors_.at(tensor).current); }
  std::span<const float> current(std::size_t tensor) const {
    return room(tensor, tensors_.at(tensor).current);
  }
  /// Unspecified until a step writes it.
  std::span<float> pending(std::size_t tensor) {
    return room(tensor, 1 - tensors_.at(tensor).current);
  }
  void accept(std::size_t tensor) { tensors_.at(tensor).current ^= 1; }

 private:
  struct Tensor {
    std::size_t offset = 0;  ///< Of both rooms, in floats from their half of the memory.
    std::size_t count = 0;
    std::size_t current = 0;  ///< 0 or 1.
  };

  std::span<float> room(std::size_t tensor, std::size_t half) const;

  std::vector<Tensor> tensors_;
  std::size_t floats_ = 0;  ///< Of one half.
  AlignedMemory memory_;
};

}  // namespace kolo
