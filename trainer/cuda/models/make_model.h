#pragma once

#include <memory>
#include <utility>

#include "comm/device/cuda_device_guard.h"
#include "comm/device/cuda_stream.h"
#include "trainer/compute/device.h"
#include "trainer/cuda/core.h"

namespace kolo::trainer::cuda {

/// Makes a model with the parameters of a `HostModel`, uploads them and makes the layers.
/// `host_shape` has one sample, since that model computes nothing. Errors: UsageError if `device`
/// is not a CUDA device, and those of the model on the processor.
template <typename M, typename HostModel, typename Shape>
std::unique_ptr<CudaModel> make_model(kolo::Device& device, const CudaModelOptions& options,
                                      const Shape& shape, const Shape& host_shape,
                                      const CudaModel::Core::Shape& batch) {
  auto parameters = std::make_unique<ParameterSet>(shape.seed);
  {
    trainer::Device processor;
    const HostModel host(processor, host_shape);
    for (std::size_t i = 0; i < host.parameters().size(); ++i) {
      parameters->add(host.parameters()[i].name(), host.parameters()[i].shape(), {});
    }
    parameters->copy_values(host.parameters());
  }
  std::unique_ptr<Stream> stream = device.make_stream();
  const CudaDeviceGuard guard(as_cuda(*stream).device());
  auto core = std::make_unique<CudaModel::Core>(device, std::move(stream), options,
                                                std::move(parameters), batch);
  return std::make_unique<M>(std::move(core), shape);
}

}  // namespace kolo::trainer::cuda
