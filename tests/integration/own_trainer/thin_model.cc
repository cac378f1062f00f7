// A model: one linear layer from pixels to classes.

#include <memory>

#include <kolo/trainer/config.h>
#include <kolo/trainer/layers/linear.h>
#include <kolo/trainer/models/image_models.h>

namespace {

using namespace kolo::trainer;

class ThinModel final : public ImageClassifier {
 public:
  ThinModel(Device& device, const ImageModelOptions& o) : ImageClassifier(o) {
    layers_.append<Linear>(device, parameters(), "thin",
                           Linear::Options{.rows = o.images,
                                           .inputs = o.height * o.width * o.channels,
                                           .outputs = o.classes,
                                           .deviation = 0.1f,
                                           .input_gradient = false});
  }
};

}  // namespace

ModelEntry thin_model() {
  return {.name = "thin",
          .task = "image-classification",
          .help = "no hidden layer",
          .set_defaults = set_image_defaults,
          .make =
              [](const ModelSetting& setting, Device& device) {
                return std::make_unique<ThinModel>(device, image_model_options(setting));
              },
          .generate = nullptr};
}
