#include "trainer/models/embedding_bag_classifier.h"

#include <cmath>

#include "trainer/config.h"

namespace kolo::trainer {

ModelEntry EmbeddingBagClassifier::entry() {
  return {.name = "embedding-bag",
          .task = "text-classification",
          .help = "mean of the vectors of a text's words",
          .set_defaults =
              [](Config& config) {
                set_text_defaults(config);
                config.lr = 1e-2f;
              },
          .make =
              [](const ModelSetting& setting, Device& device) {
                return std::make_unique<EmbeddingBagClassifier>(device,
                                                                text_model_options(setting));
              },
          .generate = nullptr,
          .reads = {"--width", "--dropout"}};
}

EmbeddingBagClassifier::EmbeddingBagClassifier(Device& device, const TextModelOptions& o)
    : Model(o.seed),
      words_(parameters(), "words",
             {.texts = o.texts,
              .length = o.length,
              .words = o.words,
              .width = o.width,
              .deviation = kWordDeviation}),
      dropout_(
          {.samples = o.texts, .width = o.width, .mask = {.share = o.dropout, .seed = o.seed}}),
      output_(device, parameters(), "output",
              {.rows = o.texts,
               .inputs = o.width,
               .outputs = o.classes,
               .deviation = 1.0f / std::sqrt(static_cast<float>(o.width))}) {}

std::span<const float> EmbeddingBagClassifier::forward(std::span<const TensorView> inputs,
                                                       const Pass& pass) {
  const std::span<const float> means =
      words_.forward(inputs[0].as<std::int32_t>(), inputs[1].as<std::int32_t>());
  return output_.forward(dropout_.forward(means, pass), pass);
}

void EmbeddingBagClassifier::backward(std::span<const float> output_gradient) {
  words_.backward(dropout_.backward(output_.backward(output_gradient)));
}

}  // namespace kolo::trainer
