#include "trainer/models/bert.h"

#include <string>

#include "trainer/config.h"
#include "trainer/config_error.h"
#include "trainer/models/bert_heads.h"

namespace kolo::trainer {

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
          .generate = nullptr,
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
          .layers = config.layers,
          .width = config.width,
          .heads = config.heads,
          .dropout = config.dropout,
          .seed = config.seed};
}

Bert::Bert(Device& device, const Options& o) : Model(o.seed), options_(o) {
  constexpr float kDeviation = 0.02f;
  const std::size_t rows = o.texts * o.length;
  embedding_ = std::make_unique<Embedding>(parameters(), "embedding",
                                           Embedding::Options{.sequences = o.texts,
                                                              .length = o.length,
                                                              .tokens = o.tokens,
                                                              .width = o.width,
                                                              .deviation = kDeviation});
  embedding_norm_ = std::make_unique<LayerNorm>(parameters(), "embedding_norm", rows, o.width);
  std::uint64_t dropouts = 0;
  embedding_dropout_ = std::make_unique<Dropout>(
      Dropout::Options{.samples = o.texts,
                       .width = o.length * o.width,
                       .mask = {.share = o.dropout, .seed = o.seed, .layer = dropouts++}});
  for (std::size_t i = 0; i < o.layers; ++i) {
    blocks_.emplace_back(device, parameters(), "block" + std::to_string(i),
                         EncoderBlock::Options{.sequences = o.texts,
                                               .length = o.length,
                                               .width = o.width,
                                               .heads = o.heads,
                                               .deviation = kDeviation,
                                               .dropout = o.dropout,
                                               .seed = o.seed,
                                               .first_dropout = dropouts});
    dropouts += 2;
  }
  const bool predicts_tokens = o.chosen > 0;
  selection_ =
      std::make_unique<RowSelection>(RowSelection::Options{.sequences = o.texts,
                                                           .length = o.length,
                                                           .taken = predicts_tokens ? o.chosen : 1,
                                                           .width = o.width});
  if (predicts_tokens) {
    head_ = std::make_unique<MaskedTokenHead>(
        device, parameters(), embedding_->token(),
        MaskedTokenHead::Options{.rows = o.texts * o.chosen, .deviation = kDeviation});
  } else {
    head_ = std::make_unique<TextClassHead>(device, parameters(),
                                            TextClassHead::Options{.texts = o.texts,
                                                                   .width = o.width,
                                                                   .classes = o.classes,
                                                                   .deviation = kDeviation,
                                                                   .dropout = o.dropout,
                                                                   .seed = o.seed,
                                                                   .dropout_layer = dropouts});
  }
}

std::span<const float> Bert::forward(std::span<const TensorView> inputs, const Pass& pass) {
  const auto embedded = embedding_->forward(inputs[0].as<std::int32_t>());
  std::span<const float> x =
      embedding_dropout_->forward(embedding_norm_->forward(embedded, pass), pass);
  for (EncoderBlock& block : blocks_) {
    block.set_lengths(inputs[1].as<std::int32_t>());
    x = block.forward(x, pass);
  }
  if (options_.chosen > 0) selection_->set_positions(inputs[2].as<std::int32_t>());
  return head_->forward(selection_->forward(x, pass), pass);
}

void Bert::backward(std::span<const float> output_gradient) {
  std::span<const float> gradient = selection_->backward(head_->backward(output_gradient));
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
    gradient = block->backward(gradient);
  }
  embedding_->backward(embedding_norm_->backward(embedding_dropout_->backward(gradient)));
}

}  // namespace kolo::trainer
