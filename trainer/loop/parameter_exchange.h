#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "comm/base/buffer_view.h"
#include "comm/base/dtype.h"
#include "runtime/api/kolo.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// Where and in which dtype gradients are kept.
struct GradientStorage {
  MemoryKind memory = MemoryKind::kHost;
  DType dtype = DType::kFloat32;
};

/// Agrees with all ranks on one gradient for each parameter whose gradient is not rows, to be
/// averaged, in memory of the runtime. Collective.
/// Errors: KoloError(kMismatch) when ranks hold different parameters.
GradientSet register_gradients(Runtime& runtime, const ParameterSet& parameters,
                               const GradientStorage& storage, GradientOptions options);

/// Gives all ranks the parameters and buffers of rank 0. Collective.
void broadcast_values(Runtime& runtime, ParameterSet& parameters);

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
    std::optional<Ticket> ticket;  // while it is under way
    std::vector<RowSums> memory;   // of the last result
  };

  void finish(std::size_t parameter);

  Runtime& runtime_;
  ParameterSet& parameters_;
  std::vector<Sum> sums_;  // by parameter
};

}  // namespace kolo::trainer
