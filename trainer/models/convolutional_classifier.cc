#include "trainer/models/convolutional_classifier.h"

#include "comm/base/check.h"
#include "trainer/layers/conv2d.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/max_pool.h"
#include "trainer/layers/relu.h"

namespace kolo::trainer {

ConvolutionalClassifier::ConvolutionalClassifier(Device& device, const ImageModelOptions& o,
                                                 const Convolutions& convolutions)
    : ImageClassifier(o) {
  const std::string side = std::to_string(convolutions.least_side);
  check(o.height >= convolutions.least_side && o.width >= convolutions.least_side,
        convolutions.model + " needs images of at least " + side + " x " + side + " pixels");
  const std::size_t kernel = convolutions.kernel;
  const std::size_t lost = kernel - 1 - 2 * convolutions.padding;  // pixels of each side
  std::size_t height = o.height;
  std::size_t width = o.width;
  std::size_t channels = o.channels;

  for (std::size_t i = 0; i < convolutions.channels.size(); ++i) {
    layers_.append<Conv2d>(device, parameters(), "conv" + std::to_string(i + 1),
                           Conv2d::Options{.images = o.images,
                                           .height = height,
                                           .width = width,
                                           .input_channels = channels,
                                           .output_channels = convolutions.channels[i],
                                           .kernel = kernel,
                                           .padding = convolutions.padding,
                                           .deviation = he_deviation(channels * kernel * kernel),
                                           .input_gradient = i > 0});
    height -= lost;
    width -= lost;
    channels = convolutions.channels[i];
    layers_.append<MaxPool>(
        device, MaxPool::Options{
                    .images = o.images, .height = height, .width = width, .channels = channels});
    height /= 2;
    width /= 2;
    // After the pooling rather than before it: the same result from a quarter of the elements.
    layers_.append<Relu>(o.images * height * width * channels);
  }

  const std::size_t features = height * width * channels;
  layers_.append<Linear>(device, parameters(), "fc1",
                         Linear::Options{.rows = o.images,
                                         .inputs = features,
                                         .outputs = o.hidden,
                                         .deviation = he_deviation(features)});
  layers_.append<Relu>(o.images * o.hidden);
  layers_.append<Linear>(device, parameters(), "fc2",
                         Linear::Options{.rows = o.images,
                                         .inputs = o.hidden,
                                         .outputs = o.classes,
                                         .deviation = he_deviation(o.hidden)});
}

}  // namespace kolo::trainer
