#include "trainer/models/convnet.h"

namespace kolo::trainer {

Convnet::Convnet(Device& device, const ImageModelOptions& options)
    : ConvolutionalClassifier(device, options,
                              {.model = "convnet",
                               .least_side = 8,
                               .kernel = 3,
                               .padding = 1,
                               .channels = {24, 48, 64}}) {}

}  // namespace kolo::trainer
