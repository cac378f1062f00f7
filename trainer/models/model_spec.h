#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <variant>

#include "trainer/models/gpt.h"
#include "trainer/models/image_classifier.h"

namespace kolo::trainer {

class Device;

/// The network and the shape of its batches: enough to make it on any device.
struct ModelSpec {
  std::string name;  ///< "gpt", or "mlp", "lenet" or "convnet" with those of an image model.
  std::variant<Gpt::Options, ImageModelOptions> options;
};

/// Makes the network on the processor. `device` outlives it. Errors: UsageError for an unknown
/// name, or if the model does not fit the images.
std::unique_ptr<Model> make_model(const ModelSpec& spec, Device& device);

}  // namespace kolo::trainer
