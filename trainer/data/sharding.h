#pragma once

#include <algorithm>
#include <cstddef>

namespace kolo::trainer {

/// One rank's part of one global step: positions [begin, begin + count) of the epoch's order, out
/// of `global_count` positions that all ranks take together.
struct ShardPart {
  std::size_t begin;
  std::size_t count;  ///< May be 0 in the last step of an epoch.
  std::size_t global_count;
  bool leaves_out_ranks;  ///< Some rank has no position.
};

/// What becomes of the last step of an epoch, which has fewer samples than the others.
enum class Uneven {
  kPad,   ///< Parts differ by one at most, and are filled up with rows that do not count.
  kDrop,  ///< It is left out.
  kJoin,  ///< The first ranks get whole parts; those that get nothing join (`Group::join`).
};

/// Deals an epoch's samples to ranks: global step t takes positions [t·N·B, (t+1)·N·B), rank r the
/// r-th B of them. The last step takes the rest:
///
///     10 samples, 2 ranks, batch 3:   step 0: 0 1 2 | 3 4 5    step 1: 6 7 | 8 9      (pad)
///                                                                      6 7 8 | 9      (join)
///                                                                      none           (drop)
///
/// Every rank has the same number of steps and no sample occurs twice, so no rank waits forever,
/// and the samples of a step do not depend on the number of ranks that share it.
class Sharding {
 public:
  /// Before: all numbers greater than 0.
  Sharding(std::size_t samples, std::size_t ranks, std::size_t batch, Uneven uneven = Uneven::kPad)
      : samples_(samples), ranks_(ranks), batch_(batch), uneven_(uneven) {}

  /// Without the last one 0 if there are fewer samples than a step takes.
  std::size_t steps() const {
    const std::size_t whole = samples_ / global_batch();
    return uneven_ == Uneven::kDrop || samples_ % global_batch() == 0 ? whole : whole + 1;
  }

  /// Before: step < steps(), rank < ranks.
  ShardPart part(std::size_t step, std::size_t rank) const {
    const std::size_t begin = step * global_batch();
    const std::size_t left = samples_ - begin;
    if (left >= global_batch()) return {begin + rank * batch_, batch_, global_batch(), false};
    const bool leaves_out_ranks = left <= samples_before(ranks_ - 1, left);
    const std::size_t before = samples_before(rank, left);
    return {begin + before, samples_before(rank + 1, left) - before, left, leaves_out_ranks};
  }

 private:
  std::size_t global_batch() const { return ranks_ * batch_; }
  /// Samples of the first `ranks` ranks in a last step of `left`.
  std::size_t samples_before(std::size_t ranks, std::size_t left) const {
    if (uneven_ == Uneven::kJoin) return std::min(left, ranks * batch_);
    return ranks * (left / ranks_) + std::min(ranks, left % ranks_);
  }

  std::size_t samples_;
  std::size_t ranks_;
  std::size_t batch_;
  Uneven uneven_;
};

}  // namespace kolo::trainer
