#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/base/check.h"
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

class Mesh;

/// Memory that training needs on this rank, beside weights.
struct UpdateMemory {
  std::size_t optimizer_bytes = 0;   ///< Bytes of the optimizer's state, such as moments.
  std::size_t gradient_bytes = 0;    ///< Bytes of gradients in the runtime's arena, without rows.
  std::size_t activation_bytes = 0;  ///< See `RankModels`.
};

/// The weight of a rank in a step with an uneven number of samples.
struct ParticipationWeight {
  double weight = 1.0;            ///< Samples of this rank divided by those of a full step.
  bool leaves_out_ranks = false;  ///< Whether any rank has no samples, and joins.
};

/// The result of one step of training.
struct StepReport {
  double gradient_norm = 0.0;  ///< Norm of the averages before clipping; not finite if skipped.
  /// Time in which the step waited for communication. On the processor, this is all time that the
  /// training thread spent in Kolo, which includes sums that it computed there. On a GPU, it is the
  /// time in which the model's stream waited for averages.
  std::chrono::nanoseconds exposed{0};
  std::chrono::nanoseconds waited{0};  ///< Time in which the passes waited for other stages.
  bool is_skipped = false;  ///< Whether the averages overflowed, so that nothing was updated.
};

/// Connects a model's parameters to the runtime: averages the gradients of a
/// backward pass over all ranks, and updates the parameters. The constructors of its
/// implementations set the hooks of the ParameterSet and broadcast the parameters of rank 0.
///
/// Collective: every rank creates one, with equal parameters, and calls the same functions in the
/// same order.
/// Threads: one. Runtime, parameters and clock outlive this object.
class ParameterUpdater : public Stateful {
 public:
  /// The factor of the loss in the next backward pass.
  virtual float loss_scale() const = 0;

  /// Sets this rank's weight in the step. Call it before the backward passes if averages are
  /// weighted by samples and ranks may join.
  virtual void take_part(const ParticipationWeight&) {}

  // Call the next three after the backward passes of a step, also on ranks without samples.
  // Errors: those of the runtime; DivergedError naming the first tensor that is not finite.

  /// Blocks until all averages that this rank applies have been received.
  virtual void await_averages() = 0;
  /// Computes the norm of all averages, and decides about scaling and skipping. Collective.
  virtual UpdateVerdict clip() = 0;
  /// Updates the parameters unless the step is skipped.
  virtual StepReport update(float lr, const UpdateVerdict& verdict) = 0;

  /// Performs the rest of a step: `await_averages`, `clip` and `update`.
  StepReport step(float lr) {
    await_averages();
    return update(lr, clip());
  }

  /// Waits until all ranks have taken as many steps, if they go at their own pace, and gives them
  /// equal weights. Returns the time that it took. Collective.
  virtual std::chrono::nanoseconds meet() { return {}; }

  /// Returns true if weights may differ between ranks at present. Then their means over all ranks
  /// are evaluated and saved.
  virtual bool ranks_differ() const { return false; }

  /// Returns the payload bytes that this rank has sent to other nodes in groups of the updater.
  virtual std::uint64_t network_bytes_sent() const { return 0; }

  virtual PlanSummary plan() const = 0;
  virtual std::vector<CompressionStats> compression_stats() const = 0;
  virtual UpdateMemory memory() = 0;
};

/// A model with its loss and optimizer on one device, connected to the runtime. It is the part of
/// training that depends on the device.
///
/// Collective: every rank creates one for the same job and calls the same functions in the same
/// order. After construction, all ranks have the parameters of rank 0.
/// Threads: one.
class Learner {
 public:
  virtual ~Learner() = default;

  virtual std::size_t parameter_count() const = 0;  ///< Number of elements of the whole model.
  virtual PlanSummary plan() const = 0;
  /// Statistics of sparse gradients. Call between steps.
  virtual std::vector<CompressionStats> compression_stats() const = 0;
  virtual float loss_scale() const = 0;  ///< Loss scale of the next step; 1 without loss scaling.
  /// Memory of training on this rank; empty on a GPU.
  virtual std::optional<UpdateMemory> memory() { return std::nullopt; }

  /// Describes which weights were loaded from a file and which are new; empty unless there are
  /// both.
  virtual std::string origin() const { return {}; }

  /// The state of training between two steps, including the parameters. Visit it between steps;
  /// restoring is collective. Devices save the same pieces, so each resumes the other's
  /// checkpoints.
  virtual Stateful& state() = 0;

  /// Runs the forward and backward pass over a batch, in which each row has weight `row_weight` in
  /// the gradients, and adds the loss to the sums of `take_sums`. The gradients of
  /// `Config::accumulation` calls add up; the last of these calls marks each gradient ready as soon
  /// as it is complete. If ranks may join, a rank without samples in this step computes nothing.
  virtual void forward_backward(const Batch& batch, float row_weight) = 0;

  /// Changes the number of samples in this rank's batches to `batch`, from the next step on. Call
  /// between steps. Collective: all ranks call it, also ranks whose batch stays the same. Errors:
  /// UsageError on a GPU.
  virtual void take_batch(std::size_t) { check(false, "models on a GPU keep their batch"); }

  // Call the next three after all passes of a step; see ParameterUpdater.
  virtual void await_averages() = 0;
  virtual UpdateVerdict clip() = 0;
  virtual StepReport update(float lr, const UpdateVerdict& verdict) = 0;

  /// See ParameterUpdater. Call it before the other collective calls between steps.
  virtual std::chrono::nanoseconds meet() { return {}; }
  /// Returns the payload bytes that this rank has sent to other nodes in groups of the learner.
  virtual std::uint64_t network_bytes_sent() const { return 0; }

  /// `begin_evaluation` replaces the weights by those to evaluate and to save; `end_evaluation`
  /// restores them. The weights to evaluate are running means if the job asks for them. Weights and
  /// buffers that differ between ranks are replaced by their means over all ranks. Do not train
  /// between the two calls. Collective.
  virtual void begin_evaluation() {}
  virtual void end_evaluation() {}

  /// Runs the forward pass over a batch and adds the loss to the sums of `take_sums`.
  virtual void evaluate(const Batch& batch) = 0;

  /// Returns the sums over all batches of this rank since the last call, and resets them.
  virtual LossSums take_sums() = 0;

  /// The parameters in host memory, valid and unchanged until the next call of any member function.
  virtual const ParameterSet& parameters() = 0;

  /// Returns the groups of a split model, or null if the model is whole on each rank.
  virtual Mesh* mesh() { return nullptr; }
  /// Returns the parameters of the whole model on rank 0. If the model is split, other ranks get
  /// `parameters()`, and the call is collective.
  virtual const ParameterSet& whole_parameters() { return parameters(); }
};

/// Makes the updater that `config` asks for, with an optimizer made by `entry`. `mesh` is null if
/// the model is whole on each rank; otherwise it must outlive the updater. Collective.
/// Errors: KoloError(kConfig) naming options that exclude each other; those of the runtime.
std::unique_ptr<ParameterUpdater> make_updater(const Config& config, const OptimizerEntry& entry,
                                               Runtime& runtime, const Task& task,
                                               ParameterSet& parameters, const Clock& clock,
                                               Mesh* mesh = nullptr);

/// Makes the learner of `task` on the device that the runtime's options name. Collective. `config`
/// may be destroyed after the call; `runtime`, `task` and `catalog` outlive the learner.
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

/// Checks that models on a GPU support all options in use. Errors: KoloError(kConfig) naming the
/// first option that they do not support.
void require_offered_on_gpus(const Config& config);

/// Names of the models that this build can train on a GPU; empty in a build without GPU support.
std::vector<std::string> device_models();

/// Functions that exist in builds with CUDA and cuDNN.
namespace cuda {

/// Names of the models that have a CUDA version.
std::vector<std::string> model_names();

/// Makes a learner on the runtime's CUDA device.
/// Errors: KoloError(kConfig) for a model without a CUDA version, or for samples that its CUDA
///         version does not accept; KoloError(kResources) if the device has too little memory;
///         UsageError if the model does not fit the samples; those of the runtime.
std::unique_ptr<Learner> make_learner(const Config& config, Runtime& runtime, const Task& task);

}  // namespace cuda
}  // namespace kolo::trainer
