#pragma once

#include <cstdint>
#include <vector>

#include "hwy/targets.h"

namespace kolo::test {

/// Returns all instruction sets of this machine for which Highway has compiled kernels.
inline std::vector<std::int64_t> simd_targets() {
  std::vector<std::int64_t> result;
  const std::int64_t usable = (hwy::SupportedTargets() & HWY_TARGETS) | HWY_STATIC_TARGET;
  for (std::int64_t left = usable; left != 0; left &= left - 1) result.push_back(left & -left);
  return result;
}

/// Makes the kernels use one instruction set during the lifetime of this object.
class ScopedSimdTarget {
 public:
  explicit ScopedSimdTarget(std::int64_t target) { hwy::GetChosenTarget().Update(target); }
  ~ScopedSimdTarget() { hwy::GetChosenTarget().DeInit(); }
  ScopedSimdTarget(const ScopedSimdTarget&) = delete;
  ScopedSimdTarget& operator=(const ScopedSimdTarget&) = delete;
};

}  // namespace kolo::test
