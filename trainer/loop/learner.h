#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "runtime/api/kolo.h"
#include "trainer/checkpoint/state_visitor.h"
#include "trainer/data/batch.h"
#include "trainer/loop/parameter_updater.h"
#include "trainer/loss/loss.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// The result of one step of training.
struct StepReport {
  double gradient_norm = 0.0;  ///< Norm of the averages, before clipping; not finite if skipped.
  /// Time in which communication kept the step from computing: on the processor, all time that the
  /// training thread spent in Kolo; on a GPU, the time in which the model's stream stood still.
  std::chrono::nanoseconds exposed{0};
  bool is_skipped = false;  ///< The averages overflowed: nothing was updated.
};

/// A model with its loss and optimizer on one device, joined to the runtime: the part of training
/// that depends on the device.
///
/// Collective: every rank makes one for the same job and calls the same functions equally often.
/// After construction all ranks hold the parameters of rank 0.
/// Threads: one.
class Learner {
 public:
  virtual ~Learner() = default;

  virtual std::size_t parameter_count() const = 0;  ///< Number of elements.
  virtual PlanSummary plan() const = 0;
  /// Statistics of the sparse gradients, between steps.
  virtual std::vector<CompressionStats> compression_stats() const = 0;
  virtual float loss_scale() const = 0;  ///< Loss scale of the next step; 1 without loss scaling.
  /// Empty on a GPU.
  virtual std::optional<UpdateMemory> memory() { return std::nullopt; }

  /// Which weights it began with, where some began new and others did not; else empty.
  virtual std::string origin() const { return {}; }

  /// What lasts from one step to the next, parameters included, to be visited between steps;
  /// restoring is collective. Null if it cannot be saved.
  virtual Stateful* state() = 0;

  /// Runs forward and backward pass over a batch in which each row has weight `row_weight` in the
  /// gradients; the loss is added to the sums. The gradients of `Config::accumulation` calls add
  /// up; the last of them marks every gradient as soon as it is complete. Where ranks may join, one
  /// without samples in this step computes nothing.
  virtual void forward_backward(const Batch& batch, float row_weight) = 0;

  /// After all passes of a step: waits for the averages, checks and clips them, updates.
  /// Errors: those of the runtime; DivergedError.
  virtual StepReport finish(float lr) = 0;

  /// Between the two calls, the model is the one that is evaluated and kept: with running means of
  /// the weights where the job asks for them, and with the means over all ranks of what training
  /// does not keep equal. Nothing is trained in between. Collective.
  virtual void begin_evaluation() {}
  virtual void end_evaluation() {}

  /// Runs the forward pass; the loss is added to the sums.
  virtual void evaluate(const Batch& batch) = 0;

  /// The sums of all this rank's batches since the last call.
  virtual LossSums take_sums() = 0;

  /// The parameters in host memory, valid and unchanged until the next call of any member.
  virtual const ParameterSet& parameters() = 0;
};

}  // namespace kolo::trainer
