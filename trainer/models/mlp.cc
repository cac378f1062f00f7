#include "trainer/models/mlp.h"

#include "trainer/config.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/relu.h"

namespace kolo::trainer {

ModelEntry Mlp::entry() {
  return {.name = "mlp",
          .task = "image-classification",
          .help = "two hidden dense layers",
          .set_defaults =
              [](Config& config) {
                set_image_defaults(config);
                config.hidden = 512;
                config.lr = 1e-3f;
              },
          .make =
              [](const ModelSetting& setting, Device& device) {
                return std::make_unique<Mlp>(device, image_model_options(setting));
              },
          .generate = nullptr,
          .reads = {"--hidden"}};
}

Mlp::Mlp(Device& device, const ImageModelOptions& o) : ImageClassifier(o) {
  const std::size_t pixels = o.height * o.width * o.channels;
  layers_.append<Linear>(device, parameters(), "fc1",
                         Linear::Options{.rows = o.images,
                                         .inputs = pixels,
                                         .outputs = o.hidden,
                                         .deviation = he_deviation(pixels),
                                         .input_gradient = false});
  layers_.append<Relu>(o.images * o.hidden);
  layers_.append<Linear>(device, parameters(), "fc2",
                         Linear::Options{.rows = o.images,
                                         .inputs = o.hidden,
                                         .outputs = o.hidden,
                                         .deviation = he_deviation(o.hidden)});
  layers_.append<Relu>(o.images * o.hidden);
  layers_.append<Linear>(device, parameters(), "fc3",
                         Linear::Options{.rows = o.images,
                                         .inputs = o.hidden,
                                         .outputs = o.classes,
                                         .deviation = he_deviation(o.hidden)});
}

}  // namespace kolo::trainer
