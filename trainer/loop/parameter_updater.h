#pragma once

#include <cstddef>
#include <vector>

#include "comm/base/clock.h"
#include "runtime/api/kolo.h"
#include "trainer/checkpoint/state_visitor.h"

namespace kolo::trainer {

/// Memory of this rank beside weights and activations.
struct UpdateMemory {
  std::size_t optimizer_bytes = 0;  ///< State of the optimizer, such as moments.
  std::size_t gradient_bytes = 0;   ///< Gradients in the runtime's arena, not of rows.
};

/// Which part a rank has in a step whose samples are uneven.
struct Turnout {
  double weight = 1.0;            ///< Samples of this rank, as a multiple of the usual number.
  bool leaves_out_ranks = false;  ///< Some rank has no samples, and joins.
};

/// The joint between a model's parameters on the processor and the runtime: from the gradients of a
/// backward pass to new values on all ranks. It registers what it needs with the parameters, and
/// gives all ranks those of rank 0.
///
/// Collective: every rank makes one, with equal parameters, and calls `step` equally often.
/// Threads: one. Runtime, parameters and clock outlive it.
class ParameterUpdater : public Stateful {
 public:
  struct Report {
    double gradient_norm;  ///< Norm of the averages, before clipping.
    /// Time since the last step that this thread spent in Kolo: in marking gradients, which may sum
    /// some of them, and in waiting for averages and values.
    Duration exposed;
    bool is_skipped;  ///< See UpdateGate.
  };

  /// Factor of the loss of the next backward pass.
  virtual float loss_scale() const = 0;

  /// Before the backward passes of a step, where averages are over samples and ranks may join.
  virtual void take_part(const Turnout&) {}

  /// After a backward pass, or without one on a rank that has no samples: waits, checks, clips,
  /// updates. Errors: those of the runtime; DivergedError naming the first tensor that is not
  /// finite.
  virtual Report step(float lr) = 0;

  virtual PlanSummary plan() const = 0;
  virtual std::vector<CompressionStats> compression_stats() const = 0;
  virtual UpdateMemory memory() = 0;
};

}  // namespace kolo::trainer
