#include "trainer/models/text_classifier.h"

#include "trainer/config.h"

namespace kolo::trainer {

TextModelOptions text_model_options(const ModelSetting& setting) {
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

}  // namespace kolo::trainer
