#include "trainer/models/lstm_classifier.h"

#include <cmath>

#include "trainer/config.h"
#include "trainer/text/vocabulary.h"

namespace kolo::trainer {
namespace {

float deviation_for(std::size_t inputs) { return 1.0f / std::sqrt(static_cast<float>(inputs)); }

}  // namespace

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
