#pragma once

#include <memory>
#include <utility>

#include "comm/device/cuda_device_guard.h"
#include "comm/device/cuda_stream.h"
#include "trainer/cuda/core/core.h"
#include "trainer/cuda/layers/linear.h"
#include "trainer/cuda/parameters/registration.h"

namespace kolo::trainer::cuda {

/// Registers the parameters of a model, uploads them and makes the layers. Errors: UsageError if
/// `device` is not a CUDA device.
template <typename M, typename Shape, typename Register>
std::unique_ptr<CudaModel> make_model(kolo::Device& device, const CudaModelOptions& options,
                                      const Shape& shape, const CudaModel::Core::Shape& batch,
                                      Register register_parameters) {
  std::unique_ptr<Stream> stream = device.make_stream();
  const CudaDeviceGuard guard(as_cuda(*stream).device());
  auto parameters = std::make_unique<ParameterSet>(shape.seed);
  const auto names = register_parameters(*parameters, shape);
  auto core = std::make_unique<CudaModel::Core>(device, std::move(stream), options,
                                                std::move(parameters), batch);
  return std::make_unique<M>(std::move(core), names, shape);
}

/// A linear layer with weight and bias.
inline Linear make_linear(CudaModel::Core& core, const LinearParameters& names,
                          const Linear::Options& options) {
  DeviceParameters& parameters = core.parameters();
  return Linear(core.context(), parameters, parameters.of(names.weight), &parameters.of(names.bias),
                options);
}

}  // namespace kolo::trainer::cuda
