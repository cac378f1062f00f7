#include "trainer/models/text_models.h"

#include <cmath>

#include "trainer/config.h"
#include "trainer/errors.h"
#include "trainer/text/vocabulary.h"

namespace kolo::trainer {
namespace {

float deviation_for(std::size_t inputs) { return 1.0f / std::sqrt(static_cast<float>(inputs)); }

}  // namespace

TextModelOptions text_model_options(const ModelSetting& setting) {
  if (setting.format.inputs.size() != 2) {
    throw_config_error("--model " + setting.config.model +
                       ": it gives each text one class: choose --task text-classification");
  }
  const Field& tokens = setting.format.inputs[0];
  return {.texts = setting.batch,
          .length = tokens.elements(),
          .words = tokens.values,
          .width = setting.config.width,
          .classes = setting.outputs,
          .dropout = setting.config.dropout,
          .seed = setting.config.seed};
}

void set_text_defaults(Config& config) {
  config.epochs = 4;
  config.batch = 32;
  config.width = 64;
  config.dropout = 0.5f;
  config.optimizer_options.beta2 = 0.999f;
}

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

ModelEntry LstmClassifier::entry() {
  return {.name = "lstm",
          .task = "text-classification",
          .help = "long short-term memory over a text's words",
          .set_defaults =
              [](Config& config) {
                set_text_defaults(config);
                config.lr = 1e-2f;
                config.max_length = 200;
              },
          .make =
              [](const ModelSetting& setting, Device& device) {
                return std::make_unique<LstmClassifier>(device, text_model_options(setting));
              },
          .generate = nullptr,
          .reads = {"--width", "--dropout"}};
}

LstmClassifier::LstmClassifier(Device& device, const TextModelOptions& o)
    : Model(o.seed),
      texts_(o.texts, o.length),
      words_(parameters(), "words",
             {.count = texts_.capacity(),
              .entries = o.words,
              .width = o.width,
              .deviation = kWordDeviation,
              .padding = Vocabulary::kPadding}),
      lstm_(device, parameters(), "lstm", texts_,
            {.inputs = o.width, .width = o.width, .deviation = deviation_for(3 * o.width)}),
      mean_(texts_, o.width),
      dropout_(
          {.samples = o.texts, .width = o.width, .mask = {.share = o.dropout, .seed = o.seed}}),
      output_(device, parameters(), "output",
              {.rows = o.texts,
               .inputs = o.width,
               .outputs = o.classes,
               .deviation = deviation_for(o.width)}) {}

std::span<const float> LstmClassifier::forward(std::span<const TensorView> inputs,
                                               const Pass& pass) {
  const auto tokens = inputs[0].as<std::int32_t>();
  texts_.assign(inputs[1].as<std::int32_t>());
  const std::size_t length = tokens.size() / texts_.sequences();
  ids_.clear();
  for (const auto [text, word] : texts_.places()) ids_.push_back(tokens[text * length + word]);
  ids_.resize(texts_.rows(), Vocabulary::kPadding);
  const std::span<const float> states = lstm_.forward(words_.forward(ids_), pass);
  return output_.forward(dropout_.forward(mean_.forward(states, pass), pass), pass);
}

void LstmClassifier::backward(std::span<const float> output_gradient) {
  words_.backward(
      lstm_.backward(mean_.backward(dropout_.backward(output_.backward(output_gradient)))));
}

}  // namespace kolo::trainer
