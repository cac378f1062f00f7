#include "trainer/models/lenet.h"

namespace kolo::trainer {

ModelEntry Lenet::entry() {
  return {.name = "lenet",
          .task = "image-classification",
          .help = "two convolutions and a hidden dense layer",
          .set_defaults = set_image_defaults,
          .make =
              [](const ModelSetting& setting, Device& device) {
                return std::make_unique<Lenet>(device, image_model_options(setting));
              },
          .generate = nullptr,
          .reads = {"--hidden"}};
}

Lenet::Lenet(Device& device, const ImageModelOptions& options)
    : ConvolutionalClassifier(
          device, options,
          {.model = "lenet", .least_side = 16, .kernel = 5, .channels = {16, 32}}) {}

}  // namespace kolo::trainer
