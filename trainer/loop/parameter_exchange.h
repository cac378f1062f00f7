#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "comm/base/buffer_view.h"
#include "comm/base/dtype.h"
#include "runtime/api/kolo.h"
#include "trainer/checkpoint/state_visitor.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// Memory kind and dtype of gradients.
struct GradientStorage {
  MemoryKind memory = MemoryKind::kHost;
  DType dtype = DType::kFloat32;
};

/// Registers all dense gradients in `group`, with memory of the runtime. Collective.
/// Errors: KoloError(kMismatch) if ranks have different parameters.
GradientSet register_gradients(Group& group, const ParameterSet& parameters,
                               const GradientStorage& storage, GradientOptions options);

/// Visits the state of compressed gradients: what each rank has not sent yet.
void visit_compression(StateVisitor& visitor, GradientSet& gradients);

/// The part of a gradient in `OwnDirections`, before the gradient is averaged.
enum class Adaptive {
  kNothing,
  kObserves,  ///< The gradient is dense and may become sparse.
  kTurns,     ///< It is sparse, and becomes a direction.
};

/// Returns, by parameter, whether compression makes averages too inexact for an adaptive optimizer,
/// in the next step or later. `gradients` are the registered ones of `parameters`.
std::vector<bool> need_directions(const ParameterSet& parameters, const GradientSet& gradients,
                                  const std::string& compression);

/// Returns what happens in the next step to gradient `place`, whose parameter needs directions.
Adaptive adaptive_role(const GradientSet& gradients, std::size_t place);

/// Broadcasts the parameters and buffers of rank 0. Collective.
void broadcast_values(Group& group, ParameterSet& parameters);

/// Averages sparse gradients of tables over a group, in the background. For each sum, Kolo's cost
/// model decides whether to send the rows or the whole table. In both cases, the result has the
/// rows whose average is not zero.
///
/// Collective: all ranks call the same functions for the same parameters in the same order.
/// Threads: one. `group` and `parameters` outlive this object.
class RowExchange {
 public:
  RowExchange(Group& group, ParameterSet& parameters)
      : group_(group), parameters_(parameters), sums_(parameters.size()) {}

  /// Starts averaging the rows of parameter number `parameter`. Before: its rows are complete.
  void begin(std::size_t parameter);

  /// Blocks until the averages started since the last call are complete, and replaces each gradient
  /// by its average. Errors: those of the runtime.
  void finish();

 private:
  struct Sum {
    std::optional<Ticket> ticket;  // set while the sum is in flight
    std::vector<RowSums> memory;   // memory of the last result, reused for the next sum
  };

  void finish(std::size_t parameter);

  Group& group_;
  ParameterSet& parameters_;
  std::vector<Sum> sums_;  // sums by parameter number
};

}  // namespace kolo::trainer
