#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "comm/base/mutex.h"

namespace kolo::trainer {

/// Which sample stands where in an epoch: a permutation of its own for each epoch, or always the
/// order of the data set.
///
/// Threads: any.
class SampleOrder {
 public:
  /// The samples by position; null stands for 0 1 2 …
  using Indices = std::shared_ptr<const std::vector<std::size_t>>;

  /// `seed` is that of the permutations; empty keeps the order.
  SampleOrder(std::size_t samples, std::optional<std::uint64_t> seed)
      : samples_(samples), seed_(seed) {}

  /// Cost: the permutations of the last two epochs asked for are kept.
  Indices of(std::uint64_t epoch) const;

 private:
  struct Known {
    std::uint64_t epoch = 0;
    Indices indices;
  };

  std::size_t samples_;
  std::optional<std::uint64_t> seed_;
  mutable Mutex mutex_;
  mutable std::array<Known, 2> known_ KOLO_GUARDED_BY(mutex_);  // the newest first
};

}  // namespace kolo::trainer
