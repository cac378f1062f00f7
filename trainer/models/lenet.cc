#include "trainer/models/lenet.h"

namespace kolo::trainer {

Lenet::Lenet(Device& device, const ImageModelOptions& options)
    : ConvolutionalClassifier(
          device, options,
          {.model = "lenet", .least_side = 16, .kernel = 5, .channels = {16, 32}}) {}

}  // namespace kolo::trainer
