#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trainer/config.h"
#include "trainer/cuda/cuda_model.h"
#include "trainer/cuda/cuda_optimizer.h"
#include "trainer/cuda/learner/stream_stopwatch.h"
#include "trainer/loop/learner.h"
#include "trainer/optimizer/update_gate.h"
#include "trainer/tasks/task.h"

namespace kolo::trainer::cuda {

/// Training on the runtime's CUDA device, in any precision.
///
/// A gradient is marked with an event after the kernel that completes it, and the model's stream
/// waits for the averages. The processor waits for the device once per step, for the report of the
/// update; the device itself decides about skipping.
class CudaLearner final : public Learner {
 public:
  /// Errors: KoloError(kResources) if the device has too little memory; UsageError if the model
  ///         does not fit the samples; those of the runtime and of `CudaModel`.
  CudaLearner(const Config& config, Runtime& runtime, const Task& task);

  std::size_t parameter_count() const override { return model_->parameters().element_count(); }
  PlanSummary plan() const override { return gradients_.plan(); }
  std::vector<CompressionStats> compression_stats() const override { return {}; }
  float loss_scale() const override { return gate_.loss_scale(); }

  Stateful* state() override { return nullptr; }  // The optimizer's is on the device.

  void forward_backward(const Batch& batch, float row_weight) override;
  StepReport finish(float lr) override;
  void evaluate(const Batch& batch) override;
  LossSums take_sums() override { return model_->take_sums(); }
  const ParameterSet& parameters() override;

 private:
  /// A batch as the kernels read it, with integers of one byte.
  struct Bytes {
    std::span<const std::uint8_t> inputs;
    std::span<const std::uint8_t> targets;
  };
  Bytes bytes_of(const Batch& batch);

  std::vector<std::uint8_t> inputs_, targets_;
  std::unique_ptr<CudaModel> model_;
  GradientSet gradients_;
  CudaOptimizer optimizer_;
  UpdateGate gate_;
  StreamStopwatch standstill_;  // time in which the model's stream waits for averages
};

}  // namespace kolo::trainer::cuda
