#pragma once

#include <cstddef>
#include <cstdint>

namespace kolo {

/// Assigns the elements of a compression group to the owners of their sums. Blocks go round-robin,
/// so that tensors with large gradients, which lie together, load all owners alike. For 4 owners:
///
///     block      | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 |
///     owner        0   1   2   3   0   1   2   3   0   1
///     local block  0   0   0   0   1   1   1   1   2   2
///
/// Equal on all ranks, fixed with the group's tensors, and independent of what is fused when.
///
/// Threads: pure; any.
class BlockOwnership {
 public:
  /// Blocks of the largest power of two from 64 to 4096 elements that gives each owner 64 blocks,
  /// or of 64. Errors: UsageError unless owners > 0.
  BlockOwnership(std::size_t count, int owners);

  std::size_t count() const { return count_; }
  int owners() const { return static_cast<int>(owners_); }
  std::size_t block() const { return block_; }

  int owner(std::size_t element) const { return static_cast<int>(element / block_ % owners_); }
  /// The element's index among those of its owner; ascends with the element.
  std::uint32_t local(std::size_t element) const {
    return static_cast<std::uint32_t>(element / (block_ * owners_) * block_ + element % block_);
  }
  /// The inverse.
  std::size_t element(int owner, std::uint32_t local) const {
    return (local / block_ * owners_ + static_cast<std::size_t>(owner)) * block_ + local % block_;
  }
  /// Number of elements of an owner, and of those below `end` among them.
  std::size_t local_count(int owner) const { return local_count_below(owner, count_); }
  std::size_t local_count_below(int owner, std::size_t end) const;
  /// The largest number of elements of any owner.
  std::size_t most_local() const { return local_count(0); }

 private:
  std::size_t count_;
  std::size_t owners_;
  std::size_t block_;
};

}  // namespace kolo
