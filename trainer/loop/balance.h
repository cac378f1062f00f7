#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "comm/base/clock.h"
#include "runtime/api/kolo.h"
#include "trainer/config.h"

namespace kolo::trainer {

/// Divides `samples` among ranks in proportion to their rates, and returns the number of each rank.
/// Shares are rounded down, but to 1 at least. Samples that are left go to the ranks with the
/// largest remainders, and to the lower rank among equal remainders. Samples that are missing are
/// taken from the ranks that exceed their shares most. Pure. Before: rates are positive, and there
/// are at least as many samples as ranks.
std::vector<std::size_t> deal_out(std::size_t samples, const std::vector<double>& rates);

/// Decides how many samples each rank takes in a backward pass, so that all ranks need the same
/// time. The samples of all ranks together stay the same, and so do the averages of their
/// gradients, up to rounding.
///
/// With "auto", the rates of ranks are measured for `kSteps` steps at a time. Samples are then
/// divided anew if that reduces the time of the slowest rank by at least `kLeastGain`.
///
/// Collective: all ranks make the same calls. Threads: one. `runtime` outlives this object.
class Balance {
 public:
  /// Number of steps between two decisions.
  static constexpr std::size_t kSteps = 20;
  /// Least gain for which samples are divided anew, as a share of the time of the slowest rank.
  static constexpr double kLeastGain = 0.05;

  /// Errors: KoloError(kConfig) if `config.balance` names rates, but not one for each rank.
  Balance(Runtime& runtime, const Config& config);

  /// The number of samples of each rank in a pass, in rank order.
  const std::vector<std::size_t>& batches() const { return batches_; }
  std::size_t own_batch() const;
  bool is_even() const { return std::ranges::count(batches_, batches_[0]) == std::ssize(batches_); }
  /// Returns `batches` as text, such as "24, 8".
  std::string words() const;

  /// Counts a step; `computed` is the time in which this rank prepared and computed its passes.
  /// Call it after each step. Returns true, then on all ranks, if `batches` has changed.
  bool after_step(Duration computed);

 private:
  Runtime& runtime_;
  const bool measures_;
  std::vector<std::size_t> batches_;
  std::vector<double> times_;  // times of steps since the last decision, in microseconds
};

}  // namespace kolo::trainer
