#pragma once

#include <array>
#include <cstddef>

#include "runtime/api/kolo.h"

namespace kolo::bench {

/// Computation of a fixed amount, in registers and the first cache, standing for a backward pass.
/// It takes longer where communication takes the core away, which waiting for a clock would hide.
///
/// Threads: one.
class ComputeWork {
 public:
  /// Finds out what a unit takes while all ranks compute. Collective.
  explicit ComputeWork(Runtime& runtime);

  /// The units that take `us` microseconds on the slowest rank; equal on all ranks.
  std::size_t units_of(double us) const;
  void run(std::size_t units);

 private:
  std::array<float, 1024> values_{};
  double unit_us_ = 0;
};

}  // namespace kolo::bench
