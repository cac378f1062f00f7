#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "runtime/api/kolo.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// Averages the row gradients of a model's tables over all ranks, in the background. Kolo's cost
/// model decides for each sum whether rows travel or the whole table does; which rows count is the
/// same in either case: those whose average is not zero.
///
/// Collective: all ranks call the same members for the same parameters.
/// Threads: one. `runtime` and `parameters` outlive it.
class RowExchange {
 public:
  RowExchange(Runtime& runtime, ParameterSet& parameters)
      : runtime_(runtime), parameters_(parameters), sums_(parameters.size()) {}

  /// Starts to average the gradient of a parameter that has rows, all of which are there.
  void begin(std::size_t parameter);

  /// Waits for the average of each parameter that `begin` has named since; it replaces the
  /// gradient. Errors: those of the runtime.
  void finish();

 private:
  struct Sum {
    std::optional<RowTicket> ticket;  // while it is under way
    RowSums memory;
  };

  void finish(std::size_t parameter);

  Runtime& runtime_;
  ParameterSet& parameters_;
  std::vector<Sum> sums_;  // by parameter
};

}  // namespace kolo::trainer
