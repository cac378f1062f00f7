#include "trainer/models/model_spec.h"

#include "comm/base/check.h"
#include "trainer/models/convnet.h"
#include "trainer/models/lenet.h"
#include "trainer/models/mlp.h"

namespace kolo::trainer {

std::unique_ptr<Model> make_model(const ModelSpec& spec, Device& device) {
  if (const auto* gpt = std::get_if<Gpt::Options>(&spec.options)) {
    return std::make_unique<Gpt>(*gpt);
  }
  const auto& image = std::get<ImageModelOptions>(spec.options);
  if (spec.name == "convnet") return std::make_unique<Convnet>(device, image);
  if (spec.name == "lenet") return std::make_unique<Lenet>(device, image);
  check(spec.name == "mlp", "there is no image model " + spec.name);
  return std::make_unique<Mlp>(image);
}

}  // namespace kolo::trainer
