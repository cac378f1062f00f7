#pragma once

#include <cstddef>

namespace kolo::trainer {

/// One rank's part of one global step: positions [begin, begin + count) of the epoch's order, out
/// of `global_count` positions that all ranks take together.
struct ShardPart {
  std::size_t begin;
  std::size_t count;  ///< May be 0 in the last step of an epoch.
  std::size_t global_count;
};

/// Deals an epoch's samples to ranks: global step t takes positions [t·N·B, (t+1)·N·B), rank r the
/// r-th B of them. The last step takes the rest, split so that parts differ by one at most:
///
///     10 samples, 2 ranks, batch 3:   step 0: 0 1 2 | 3 4 5    step 1: 6 7 | 8 9
///
/// Every rank has the same number of steps and every sample occurs once, so no rank waits forever,
/// and the samples of a step do not depend on the number of ranks that share it.
class Sharding {
 public:
  /// Before: all greater than 0.
  Sharding(std::size_t samples, std::size_t ranks, std::size_t batch)
      : samples_(samples), ranks_(ranks), batch_(batch) {}

  std::size_t steps() const { return (samples_ + global_batch() - 1) / global_batch(); }

  /// Before: step < steps(), rank < ranks.
  ShardPart part(std::size_t step, std::size_t rank) const {
    const std::size_t begin = step * global_batch();
    const std::size_t left = samples_ - begin;
    if (left >= global_batch()) return {begin + rank * batch_, batch_, global_batch()};
    const std::size_t even = left / ranks_;
    const std::size_t longer = left % ranks_;  // ranks with one sample more
    return {begin + rank * even + (rank < longer ? rank : longer), even + (rank < longer ? 1 : 0),
            left};
  }

 private:
  std::size_t global_batch() const { return ranks_ * batch_; }

  std::size_t samples_;
  std::size_t ranks_;
  std::size_t batch_;
};

}  // namespace kolo::trainer
