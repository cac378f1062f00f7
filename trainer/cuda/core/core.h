#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "trainer/cuda/compute/context.h"
#include "trainer/cuda/core/batch_staging.h"
#include "trainer/cuda/core/loss.h"
#include "trainer/cuda/cuda_model.h"
#include "trainer/cuda/graph/step_graph.h"
#include "trainer/cuda/parameters/device_parameters.h"

namespace kolo::trainer::cuda {

/// The common part of every model: a stream, parameters on host and device, a batch, a loss, and a
/// launch mode.
///
/// Members are declared so that objects that others refer to come first and are destroyed last.
class CudaModel::Core {
 public:
  struct Shape {
    std::size_t input_bytes;
    std::size_t rows;
    std::size_t classes;
  };

  /// Takes a stream of `device` and registered parameters, and uploads the parameters.
  Core(kolo::Device& device, std::unique_ptr<Stream> stream, const CudaModelOptions& options,
       std::unique_ptr<ParameterSet> parameters, const Shape& shape);

  kolo::Device& device() { return device_; }
  Stream& stream() { return *stream_; }
  int device_index() const { return device_index_; }
  Context& context() { return context_; }
  DeviceParameters& parameters() { return parameters_; }
  ParameterSet& host_parameters() { return *host_parameters_; }
  const CudaModelOptions& options() const { return options_; }
  const Shape& shape() const { return shape_; }
  BatchStaging& batch() { return batch_; }
  Loss& loss() { return loss_; }

  void bind_gradient(std::size_t index, float* memory);
  void own_gradients();
  void on_gradient_ready(ReadyHook hook) { hook_ = std::move(hook); }

  /// Enqueues one step, which `enqueue` describes; see LaunchMode.
  void launch(const std::function<void()>& enqueue);

  /// Copies a batch to the device. Errors: UsageError if it does not fit the shape.
  void load(std::span<const std::uint8_t> inputs, std::span<const std::uint8_t> targets,
            const LossFactors& factors);
  LossSums take_sums();

 private:
  void record(const std::function<void()>& enqueue);

  kolo::Device& device_;
  CudaModelOptions options_;
  Shape shape_;
  std::unique_ptr<Stream> stream_;
  int device_index_;
  Context context_;
  std::unique_ptr<ParameterSet> host_parameters_;
  DeviceParameters parameters_;
  BatchStaging batch_;
  Loss loss_;
  DeviceMemory own_gradients_;
  ReadyHook hook_;
  StepGraph graph_;
  bool is_warm_ = false;  // a step has run, so everything that loads lazily is loaded
  double rows_ = 0.0;     // since the last take_sums
};

}  // namespace kolo::trainer::cuda
