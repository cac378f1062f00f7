#include "trainer/models/convnet.h"

#include "trainer/config.h"

namespace kolo::trainer {

ModelEntry Convnet::entry() {
  return {.name = "convnet",
          .task = "image-classification",
          .help = "three convolutions and a hidden dense layer, for colour photographs",
          .set_defaults =
              [](Config& config) {
                set_image_defaults(config);
                config.epochs = 10;
              },
          .make =
              [](const ModelSetting& setting, Device& device) {
                return std::make_unique<Convnet>(device, image_model_options(setting));
              },
          .generate = nullptr,
          .reads = {"--hidden"}};
}

Convnet::Convnet(Device& device, const ImageModelOptions& options)
    : ConvolutionalClassifier(device, options,
                              {.model = "convnet",
                               .least_side = 8,
                               .kernel = 3,
                               .padding = 1,
                               .channels = {24, 48, 64}}) {}

}  // namespace kolo::trainer
