#include "trainer/models/lenet.h"

#include <string>

#include "comm/base/check.h"
#include "trainer/layers/conv2d.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/max_pool.h"
#include "trainer/layers/relu.h"

namespace kolo::trainer {

Lenet::Lenet(Device& device, const ImageModelOptions& o) : ImageClassifier(o) {
  check(o.height >= 16 && o.width >= 16, "lenet needs images of at least 16 x 16 pixels");
  constexpr std::size_t kKernel = 5;
  std::size_t height = o.height;
  std::size_t width = o.width;
  std::size_t channels = o.channels;

  const auto append_convolution = [&](const std::string& name, std::size_t output_channels) {
    layers_.append<Conv2d>(device, parameters(), name,
                           Conv2d::Options{.images = o.images,
                                           .height = height,
                                           .width = width,
                                           .input_channels = channels,
                                           .output_channels = output_channels,
                                           .kernel = kKernel,
                                           .deviation = he_deviation(channels * kKernel * kKernel),
                                           .input_gradient = name != "conv1"});
    height -= kKernel - 1;
    width -= kKernel - 1;
    channels = output_channels;
    layers_.append<MaxPool>(
        device, MaxPool::Options{
                    .images = o.images, .height = height, .width = width, .channels = channels});
    height /= 2;
    width /= 2;
    // After the pooling rather than before it: the same result on a quarter of the elements.
    layers_.append<Relu>(o.images * height * width * channels);
  };
  append_convolution("conv1", 16);
  append_convolution("conv2", 32);

  const std::size_t features = height * width * channels;
  layers_.append<Linear>(parameters(), "fc1",
                         Linear::Options{.rows = o.images,
                                         .inputs = features,
                                         .outputs = o.hidden,
                                         .deviation = he_deviation(features)});
  layers_.append<Relu>(o.images * o.hidden);
  layers_.append<Linear>(parameters(), "fc2",
                         Linear::Options{.rows = o.images,
                                         .inputs = o.hidden,
                                         .outputs = o.classes,
                                         .deviation = he_deviation(o.hidden)});
}

}  // namespace kolo::trainer
