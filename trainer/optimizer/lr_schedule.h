#pragma once

#include <cstddef>

namespace kolo::trainer {

/// Learning rate by step: a linear rise over `warmup_steps`, then half a cosine down to
/// `final_lr` at the last step.
///
/// Source: Loshchilov and Hutter, "SGDR", ICLR 2017, without restarts.
struct LrSchedule {
  float peak_lr;
  float final_lr;
  std::size_t warmup_steps;
  std::size_t total_steps;

  /// Shape: step 0 is the first; steps beyond the last have `final_lr`.
  float at(std::size_t step) const;
};

}  // namespace kolo::trainer
