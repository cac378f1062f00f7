#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "fusion/bucket_planner.h"

namespace kolo {

/// Counts which buckets of a plan still wait for gradients of this rank. Threads: one.
class Readiness {
 public:
  explicit Readiness(const Plan& plan);

  /// Gradient `gradient` of the current iteration is computed. Returns its bucket if that was the
  /// last one it waited for; the bucket then waits for all of the next iteration's.
  std::optional<std::size_t> mark(std::size_t gradient);

 private:
  std::vector<std::size_t> bucket_of_;
  std::vector<std::size_t> size_, missing_;  // gradients, by bucket
};

}  // namespace kolo
