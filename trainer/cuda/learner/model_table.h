#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/device/device.h"
#include "trainer/cuda/cuda_model.h"
#include "trainer/models/model.h"

namespace kolo::trainer::cuda {

/// Names of the models that exist on a CUDA device.
std::vector<std::string> model_names();

/// Errors: KoloError(kConfig) for a model that does not exist on a CUDA device, or for samples that
///         it cannot take there; those of the model.
std::unique_ptr<CudaModel> make_model(std::string_view name, kolo::Device& device,
                                      const ModelSetting& setting, const CudaModelOptions& options);

}  // namespace kolo::trainer::cuda
