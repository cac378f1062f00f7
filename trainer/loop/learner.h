#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/base/clock.h"
#include "runtime/api/kolo.h"
#include "trainer/catalog.h"
#include "trainer/checkpoint/state_visitor.h"
#include "trainer/config.h"
#include "trainer/data/dataset.h"
#include "trainer/loss/loss.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/optimizer/update_gate.h"
#include "trainer/parameter_set.h"
#include "trainer/tasks/task.h"

namespace kolo::trainer {

/// Memory of this rank other than weights and activations.
struct UpdateMemory {
  std::size_t optimizer_bytes = 0;  ///< State of the optimizer, such as moments.
  std::size_t gradient_bytes = 0;   ///< Gradients in the runtime's arena, except rows.
};

/// The part that a rank has in a step with an uneven number of samples.
struct ParticipationWeight {
  double weight = 1.0;            ///< Samples of this rank, as a multiple of the usual number.
  bool leaves_out_ranks = false;  ///< Some rank has no samples, and joins.
};

/// The result of one step of training.
struct StepReport {
  double gradient_norm = 0.0;  ///< Norm of the averages before clipping; not finite if skipped.
  /// Time in which communication kept the step from computing. On the processor: all time that the
  /// training thread spent in Kolo, marking gradients (which may sum some of them) and waiting for
  /// averages and values. On a GPU: the time in which the model's stream was idle.
  std::chrono::nanoseconds exposed{0};
  bool is_skipped = false;  ///< The averages overflowed: nothing was updated.
};

/// Connects a model's parameters on the processor to the runtime: it turns the gradients of a
/// backward pass into new values on all ranks. It registers its hooks with the parameters, and
/// broadcasts the parameters of rank 0.
///
/// Collective: every rank creates one, with equal parameters, and calls the same functions equally
/// often.
/// Threads: one. Runtime, parameters and clock outlive it.
class ParameterUpdater : public Stateful {
 public:
  /// Factor of the loss of the next backward pass.
  virtual float loss_scale() const = 0;

  /// Call before the backward passes of a step, if averages are weighted by samples and ranks may
  /// join.
  virtual void take_part(const ParticipationWeight&) {}

  // Call these after the backward passes of a step, or without a backward pass on a rank without
  // samples.
  // Errors: those of the runtime; DivergedError naming the first tensor that is not finite.

  /// Waits until all averages have arrived, unless parameters are updated one by one.
  virtual void await_averages() = 0;
  /// Computes the norm over all ranks, and decides how gradients are scaled and whether the step is
  /// skipped.
  virtual UpdateVerdict clip() = 0;
  /// Updates the parameters unless the step is skipped.
  virtual StepReport update(float lr, const UpdateVerdict& verdict) = 0;

  /// A whole step: `await_averages`, `clip` and `update`.
  StepReport step(float lr) {
    await_averages();
    return update(lr, clip());
  }

  virtual PlanSummary plan() const = 0;
  virtual std::vector<CompressionStats> compression_stats() const = 0;
  virtual UpdateMemory memory() = 0;
};

/// A model with its loss and optimizer on one device, connected to the runtime: the part of
/// training that depends on the device.
///
/// Collective: every rank creates one for the same job and calls the same functions equally often.
/// After construction all ranks hold the parameters of rank 0.
/// Threads: one.
class Learner {
 public:
  virtual ~Learner() = default;

  virtual std::size_t parameter_count() const = 0;  ///< Number of elements.
  virtual PlanSummary plan() const = 0;
  /// Statistics of sparse gradients. Call between steps.
  virtual std::vector<CompressionStats> compression_stats() const = 0;
  virtual float loss_scale() const = 0;  ///< Loss scale of the next step; 1 without loss scaling.
  /// Empty on a GPU.
  virtual std::optional<UpdateMemory> memory() { return std::nullopt; }

  /// Describes which weights were loaded and which were initialised anew, if both exist; else
  /// empty.
  virtual std::string origin() const { return {}; }

  /// The state that lasts from one step to the next, parameters included. Visit it between steps;
  /// restoring is collective. Null if it cannot be saved.
  virtual Stateful* state() = 0;

  /// Runs forward and backward pass over a batch in which each row has weight `row_weight` in the
  /// gradients, and adds the loss to the sums. The gradients of `Config::accumulation` calls add
  /// up; the last call marks every gradient ready as soon as it is complete. If ranks may join, a
  /// rank without samples in this step computes nothing.
  virtual void forward_backward(const Batch& batch, float row_weight) = 0;

  // Call these after all passes of a step; see ParameterUpdater.
  virtual void await_averages() = 0;
  virtual UpdateVerdict clip() = 0;
  virtual StepReport update(float lr, const UpdateVerdict& verdict) = 0;

  /// Between the two calls, the model has the weights to evaluate and keep: running means of the
  /// weights if the job asks for them, and means over all ranks of buffers that differ between
  /// ranks. Do not train in between. Collective.
  virtual void begin_evaluation() {}
  virtual void end_evaluation() {}

  /// Runs the forward pass and adds the loss to the sums.
  virtual void evaluate(const Batch& batch) = 0;

  /// The sums of all this rank's batches since the last call.
  virtual LossSums take_sums() = 0;

  /// The parameters in host memory, valid and unchanged until the next call of any member.
  virtual const ParameterSet& parameters() = 0;
};

/// Makes the updater that `config` asks for, with an optimizer made by `entry`. Collective.
/// Errors: KoloError(kConfig) naming options that exclude each other; those of the runtime.
std::unique_ptr<ParameterUpdater> make_updater(const Config& config, const OptimizerEntry& entry,
                                               Runtime& runtime, const Task& task,
                                               ParameterSet& parameters, const Clock& clock);

/// Makes the learner of `task` on the device that the runtime's options name. Collective; `config`
/// and `task` need not outlive the call, `runtime` outlives the learner.
///
/// Before:  config and task are equal on all ranks (`require_same_job`).
/// Errors:  KoloError(kConfig) for a device that this build cannot train on, or for an option that
///          the device does not support; UsageError if the model does not accept the samples; those
///          of the runtime.
std::unique_ptr<Learner> make_learner(const Config& config, Runtime& runtime, const Task& task,
                                      const Catalog& catalog);

/// Makes a learner on the processor; see Note [Mixed precision] in trainer/precision.
/// Errors: KoloError(kConfig) for a precision or an option that the processor does not support;
///         UsageError if the model does not fit the samples; those of the runtime.
std::unique_ptr<Learner> make_cpu_learner(const Config& config, Runtime& runtime, const Task& task,
                                          const Catalog& catalog);

/// Errors: KoloError(kConfig) naming the first option in use that models on a GPU do not support.
void require_offered_on_gpus(const Config& config);

/// Names of the models that this build trains on a GPU as well.
std::vector<std::string> device_models();

/// Available in a build with CUDA and cuDNN.
namespace cuda {

/// Names of the models that exist on a CUDA device.
std::vector<std::string> model_names();

/// Makes a learner on the runtime's CUDA device.
/// Errors: KoloError(kConfig) for a model without a CUDA version, or for samples that its CUDA
///         version does not accept; KoloError(kResources) if the device has too little memory;
///         UsageError if the model does not fit the samples; those of the runtime.
std::unique_ptr<Learner> make_learner(const Config& config, Runtime& runtime, const Task& task);

}  // namespace cuda
}  // namespace kolo::trainer
