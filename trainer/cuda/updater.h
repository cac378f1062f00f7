#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "runtime/api/kolo.h"
#include "trainer/checkpoint/state_visitor.h"
#include "trainer/config.h"
#include "trainer/cuda/cuda_optimizer.h"
#include "trainer/cuda/parameters.h"
#include "trainer/loop/learner.h"
#include "trainer/optimizer/update_gate.h"

namespace kolo::trainer::cuda {

/// Connects the parameters of a model on a device to the runtime: averages their gradients, and
/// updates them. The host waits for the device once per step, in `update`. The device decides
/// whether to skip a step, so `clip` does nothing.
class DeviceUpdater : public ParameterUpdater {
 public:
  /// Call once per step and gradient, when the work that completes it is enqueued on the stream of
  /// the parameters.
  virtual void ready(std::size_t index) = 0;
  /// Makes the stream wait for the values that other ranks update. Call after `update`.
  virtual void await_values() {}

  float loss_scale() const override { return gate_.loss_scale(); }
  UpdateVerdict clip() override { return {}; }
  StepReport update(float lr, const UpdateVerdict& verdict) override;
  void visit_state(StateVisitor& visitor) override;
  UpdateMemory memory() override;

 protected:
  DeviceUpdater(const Config& config, const Options& options, DeviceParameters& parameters);
  /// Call when the gradients are bound.
  CudaOptimizer& make_optimizer(const Config& config);
  CudaOptimizer& optimizer() { return *optimizer_; }
  NativeStream stream() const { return {parameters_.stream().native()}; }
  /// Whether the gradients of this step are clipped.
  virtual bool clips() const { return true; }
  /// Called when the update of this rank's values is enqueued.
  virtual void updated() = 0;

  DeviceParameters& parameters_;
  const DType dtype_;  // of gradients

 private:
  UpdateGate gate_;
  std::optional<CudaOptimizer> optimizer_;
};

/// Returns the plan of the device's arrays that `make_updater` needs.
MakeParameterPlan parameter_plan(const Config& config, const Runtime& runtime);

/// Makes the updater that --shard asks for, and binds the gradients. Collective. `runtime` and
/// `parameters` outlive it. Before: `parameters` has the plan of `parameter_plan`.
/// Errors: KoloError(kConfig) for options that exclude each other; those of the runtime.
std::unique_ptr<DeviceUpdater> make_updater(const Config& config, Runtime& runtime,
                                            DeviceParameters& parameters);

}  // namespace kolo::trainer::cuda
