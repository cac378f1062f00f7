#include "trainer/models/bert.h"

#include <string>

#include "trainer/config.h"
#include "trainer/errors.h"
#include "trainer/layers/elementwise.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/normalization.h"

namespace kolo::trainer {
namespace {

Linear::Options linear(std::size_t rows, std::size_t inputs, std::size_t outputs) {
  return {.rows = rows, .inputs = inputs, .outputs = outputs, .deviation = kTransformerDeviation};
}

}  // namespace

ModelEntry Bert::entry() {
  return {.name = "bert",
          .task = "text-classification",
          .help = "transformer that reads a text in both directions",
          .set_defaults =
              [](Config& config) {
                config.epochs = 4;
                config.batch = 32;
                config.layers = 2;
                config.max_length = 64;
                config.text_marks = true;
                config.dropout = 0.1f;
                config.lr = 1e-3f;
                config.warmup_steps = 100;
                config.clip_norm = 1.0;
                config.optimizer_options.beta2 = 0.999f;
                config.optimizer_options.weight_decay = 0.01f;
              },
          .make = [](const ModelSetting& setting,
                     Device& device) { return std::make_unique<Bert>(device, options(setting)); },
          .reads = {"--layers", "--width", "--heads", "--dropout"}};
}

Bert::Options Bert::options(const ModelSetting& setting) {
  const std::vector<Field>& inputs = setting.format.inputs;
  const Config& config = setting.config;
  if (inputs.size() < 2 || inputs[0].name != "tokens" || inputs[1].name != "length") {
    throw_config_error(
        "--model bert: it reads texts as a whole: choose --task text-classification or "
        "masked-tokens");
  }
  if (!config.text_marks) throw_config_error("--model bert: needs --text-marks on");
  if (config.width % config.heads != 0) {
    throw_config_error("--width " + std::to_string(config.width) +
                       " is not a multiple of --heads " + std::to_string(config.heads));
  }
  return {.texts = setting.batch,
          .length = inputs[0].elements(),
          .tokens = inputs[0].values,
          .chosen = inputs.size() > 2 ? inputs[2].elements() : 0,
          .classes = setting.outputs,
          .model = config,
          .seed = config.seed};
}

Bert::Bert(Device& device, const Options& o)
    : Model(o.seed),
      options_(o),
      embedding_(parameters(), "embedding",
                 {.sequences = o.texts,
                  .length = o.length,
                  .tokens = o.tokens,
                  .width = o.model.width,
                  .deviation = kTransformerDeviation}) {
  layers_.append<LayerNorm>(parameters(), "embedding_norm", o.texts * o.length, o.model.width);
  std::uint64_t dropouts = 0;
  const auto append_dropout = [&](std::size_t width) {
    layers_.append<Dropout>(
        Dropout::Options{.samples = o.texts,
                         .width = width,
                         .mask = {.share = o.model.dropout, .seed = o.seed, .layer = dropouts++}});
  };
  append_dropout(o.length * o.model.width);
  for (std::size_t i = 0; i < o.model.layers; ++i) {
    blocks_.push_back(
        &layers_.append<EncoderBlock>(device, parameters(), "block" + std::to_string(i),
                                      EncoderBlock::Options{.sequences = o.texts,
                                                            .length = o.length,
                                                            .width = o.model.width,
                                                            .heads = o.model.heads,
                                                            .deviation = kTransformerDeviation,
                                                            .dropout = o.model.dropout,
                                                            .seed = o.seed,
                                                            .first_dropout = dropouts}));
    dropouts += 2;
  }
  const std::size_t taken = o.chosen > 0 ? o.chosen : 1;
  selection_ = &layers_.append<RowSelection>(RowSelection::Options{
      .sequences = o.texts, .length = o.length, .taken = taken, .width = o.model.width});
  if (o.chosen > 0) {  // predict tokens at the chosen positions
    const std::size_t rows = o.texts * o.chosen;
    layers_.append<Linear>(device, parameters(), "masked.dense",
                           linear(rows, o.model.width, o.model.width));
    layers_.append<Gelu>(rows * o.model.width);
    layers_.append<LayerNorm>(parameters(), "masked.norm", rows, o.model.width);
    layers_.append<Linear>(device, parameters(), "masked.output", embedding_.token(), rows);
  } else {  // classify whole texts
    layers_.append<Linear>(device, parameters(), "pooler",
                           linear(o.texts, o.model.width, o.model.width));
    layers_.append<Tanh>(o.texts * o.model.width);
    append_dropout(o.model.width);
    layers_.append<Linear>(device, parameters(), "classifier",
                           linear(o.texts, o.model.width, o.classes));
  }
}

std::span<const float> Bert::forward(std::span<const TensorView> inputs, const Pass& pass) {
  for (EncoderBlock* block : blocks_) block->set_lengths(inputs[1].as<std::int32_t>());
  if (options_.chosen > 0) selection_->set_positions(inputs[2].as<std::int32_t>());
  return layers_.forward(embedding_.forward(inputs[0].as<std::int32_t>()), pass);
}

void Bert::backward(std::span<const float> output_gradient) {
  embedding_.backward(layers_.backward(output_gradient));
}

}  // namespace kolo::trainer
