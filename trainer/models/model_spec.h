#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <variant>

#include "trainer/models/gpt.h"
#include "trainer/models/image_classifier.h"

namespace kolo::trainer {

class Device;

/// Which network, and for batches of which shape: enough to make it on any device.
struct ModelSpec {
  std::string name;  ///< "gpt", or "mlp", "lenet" or "convnet" with those of an image model.
  std::variant<Gpt::Options, ImageModelOptions> options;
};

/// The network on the processor. `device` outlives it.
/// Errors: UsageError for an unknown name, or when the model cannot take the images.
std::unique_ptr<Model> make_model(const ModelSpec& spec, Device& device);

}  // namespace kolo::trainer
