#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "fusion/bucket_planner.h"

namespace kolo {

/// Counts the gradients of this rank that each bucket of a plan still waits for. Threads: one.
class Readiness {
 public:
  explicit Readiness(const Plan& plan);

  /// Marks `gradient` as complete in the current iteration. Returns its bucket if it was the last
  /// one missing; the bucket then starts to count for the next iteration.
  std::optional<std::size_t> mark(std::size_t gradient);

  std::size_t bucket_of(std::size_t gradient) const { return bucket_of_[gradient]; }

 private:
  std::vector<std::size_t> bucket_of_;
  std::vector<std::size_t> size_, missing_;  // gradients, by bucket
};

}  // namespace kolo
