#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/loop/learner.h"

namespace kolo::trainer::cuda {

/// Names of the models that exist on a CUDA device.
std::vector<std::string> model_names();

/// Training on the runtime's CUDA device.
/// Errors: KoloError(kConfig) for a model that does not exist there, or for samples that it cannot
///         take there; KoloError(kResources) if the device has too little memory; UsageError if the
///         model does not fit the samples; those of the runtime.
std::unique_ptr<Learner> make_learner(const Config& config, Runtime& runtime, const Task& task);

}  // namespace kolo::trainer::cuda
