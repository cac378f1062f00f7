#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "comm/base/buffer_view.h"
#include "comm/base/dtype.h"
#include "runtime/api/kolo.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// Memory kind and dtype of gradients.
struct GradientStorage {
  MemoryKind memory = MemoryKind::kHost;
  DType dtype = DType::kFloat32;
};

/// Registers a gradient to be averaged, in memory of the runtime, for each parameter whose gradient
/// is not rows. Collective.
/// Errors: KoloError(kMismatch) if ranks have different parameters.
GradientSet register_gradients(Runtime& runtime, const ParameterSet& parameters,
                               const GradientStorage& storage, GradientOptions options);

/// Broadcasts the parameters and buffers of rank 0. Collective.
void broadcast_values(Runtime& runtime, ParameterSet& parameters);

/// Averages the row gradients of a model's tables over all ranks, in the background. Kolo's cost
/// model decides for each sum whether to send the rows or the whole table. Either way, the result
/// consists of the rows whose average is not zero.
///
/// Collective: all ranks call the same functions for the same parameters.
/// Threads: one. `runtime` and `parameters` outlive it.
class RowExchange {
 public:
  RowExchange(Runtime& runtime, ParameterSet& parameters)
      : runtime_(runtime), parameters_(parameters), sums_(parameters.size()) {}

  /// Starts to average the gradient of a parameter with rows. Before: all its rows are complete.
  void begin(std::size_t parameter);

  /// Waits for the averages started since the last call; each replaces its gradient. Errors: those
  /// of the runtime.
  void finish();

 private:
  struct Sum {
    std::optional<Ticket> ticket;  // while the sum is under way
    std::vector<RowSums> memory;   // of the last result
  };

  void finish(std::size_t parameter);

  Runtime& runtime_;
  ParameterSet& parameters_;
  std::vector<Sum> sums_;  // by parameter
};

}  // namespace kolo::trainer
