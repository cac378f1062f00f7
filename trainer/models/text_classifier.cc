#include "trainer/models/text_classifier.h"

#include "trainer/config.h"
#include "trainer/config_error.h"

namespace kolo::trainer {

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

}  // namespace kolo::trainer
