#include "trainer/models/text_models.h"

#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "trainer/config.h"
#include "trainer/errors.h"
#include "trainer/layers/elementwise.h"
#include "trainer/layers/linear.h"

namespace kolo::trainer {
namespace {

float deviation_for(std::size_t inputs) { return 1.0f / std::sqrt(static_cast<float>(inputs)); }

void set_text_defaults(Config& config) {
  config.epochs = 4;
  config.batch = 32;
  config.lr = 1e-2f;
  config.width = 64;
  config.dropout = 0.5f;
  config.optimizer_options.beta2 = 0.999f;
}

/// Appends dropout and the output layer, which maps the vector of each text to class logits.
void append_classifier(Sequential& layers, Device& device, ParameterSet& parameters,
                       const TextModelOptions& o) {
  layers.append<Dropout>(Dropout::Options{.samples = o.texts,
                                          .width = o.model.width,
                                          .mask = {.share = o.model.dropout, .seed = o.seed}});
  layers.append<Linear>(device, parameters, "output",
                        Linear::Options{.rows = o.texts,
                                        .inputs = o.model.width,
                                        .outputs = o.classes,
                                        .deviation = deviation_for(o.model.width)});
}

template <typename M>
ModelEntry text_classifier_entry(std::string name, std::string help,
                                 std::function<void(Config&)> set_defaults) {
  return {.name = std::move(name),
          .task = "text-classification",
          .help = std::move(help),
          .set_defaults = std::move(set_defaults),
          .make =
              [](const ModelSetting& setting, Device& device) {
                return std::make_unique<M>(device, text_model_options(setting));
              },
          .reads = {"--width", "--dropout"}};
}

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
          .classes = setting.outputs,
          .model = setting.config,
          .seed = setting.config.seed};
}

ModelEntry EmbeddingBagClassifier::entry() {
  return text_classifier_entry<EmbeddingBagClassifier>(
      "embedding-bag", "mean of the vectors of a text's words", set_text_defaults);
}

EmbeddingBagClassifier::EmbeddingBagClassifier(Device& device, const TextModelOptions& o)
    : Model(o.seed),
      words_(parameters(), "words",
             {.texts = o.texts,
              .length = o.length,
              .words = o.words,
              .width = o.model.width,
              .deviation = kWordDeviation}) {
  append_classifier(layers_, device, parameters(), o);
}

std::span<const float> EmbeddingBagClassifier::forward(std::span<const TensorView> inputs,
                                                       const Pass& pass) {
  const std::span<const float> means =
      words_.forward(inputs[0].as<std::int32_t>(), inputs[1].as<std::int32_t>());
  return layers_.forward(means, pass);
}

void EmbeddingBagClassifier::backward(std::span<const float> output_gradient) {
  words_.backward(layers_.backward(output_gradient));
}

ModelEntry LstmClassifier::entry() {
  return text_classifier_entry<LstmClassifier>("lstm", "long short-term memory over a text's words",
                                               [](Config& config) {
                                                 set_text_defaults(config);
                                                 config.max_length = 200;
                                               });
}

LstmClassifier::LstmClassifier(Device& device, const TextModelOptions& o)
    : Model(o.seed),
      texts_(o.texts, o.length),
      words_(parameters(), "words",
             {.count = texts_.capacity(),
              .entries = o.words,
              .width = o.model.width,
              .deviation = kWordDeviation}) {
  layers_.append<Lstm>(device, parameters(), "lstm", texts_,
                       Lstm::Options{.inputs = o.model.width,
                                     .width = o.model.width,
                                     .deviation = deviation_for(3 * o.model.width)});
  layers_.append<SequenceMean>(texts_, o.model.width);
  append_classifier(layers_, device, parameters(), o);
}

std::span<const float> LstmClassifier::forward(std::span<const TensorView> inputs,
                                               const Pass& pass) {
  const auto tokens = inputs[0].as<std::int32_t>();
  texts_.assign(inputs[1].as<std::int32_t>());
  const std::size_t length = tokens.size() / texts_.sequences();
  ids_.clear();
  for (const auto [text, word] : texts_.places()) ids_.push_back(tokens[text * length + word]);
  ids_.resize(texts_.rows());  // any word: rows after the last word have gradients of zero
  return layers_.forward(words_.forward(ids_), pass);
}

void LstmClassifier::backward(std::span<const float> output_gradient) {
  words_.backward(layers_.backward(output_gradient));
}

}  // namespace kolo::trainer
