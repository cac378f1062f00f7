#include "trainer/models/bert.h"

#include <string>

#include "trainer/config.h"
#include "trainer/errors.h"
#include "trainer/layers/layer.h"
#include "trainer/layers/linear.h"

namespace kolo::trainer {
namespace {

/// Rows to the tokens that they stand for: norm(gelu(dense(x))) · tableᵀ + bias.
///
/// Shape: x is [rows, width], y is [rows, tokens], the table [tokens, width]. Registers
///        masked.dense, masked.norm and masked.output.bias.
class MaskedTokenHead final : public Layer {
 public:
  struct Options {
    std::size_t rows;
    float deviation;  ///< Of initial weights.
  };

  /// `table` is that of the embedding.
  MaskedTokenHead(Device& device, ParameterSet& parameters, Parameter& table, const Options& o)
      : dense_(device, parameters, "masked.dense",
               {.rows = o.rows,
                .inputs = table.shape()[1],
                .outputs = table.shape()[1],
                .deviation = o.deviation}),
        gelu_(o.rows * table.shape()[1]),
        norm_(parameters, "masked.norm", o.rows, table.shape()[1]),
        output_(device, parameters, "masked.output", table, o.rows) {}

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override {
    const auto dense = gelu_.forward(dense_.forward(input, pass), pass);
    return output_.forward(norm_.forward(dense, pass), pass);
  }
  std::span<const float> backward(std::span<const float> output_gradient) override {
    return dense_.backward(gelu_.backward(norm_.backward(output_.backward(output_gradient))));
  }

 private:
  Linear dense_;
  Gelu gelu_;
  LayerNorm norm_;
  Linear output_;
};

/// Rows of whole texts to classes: classifier(drop(tanh(pooler(x)))).
///
/// Shape: x is [texts, width], y is [texts, classes]. Registers pooler and classifier.
class TextClassHead final : public Layer {
 public:
  struct Options {
    std::size_t texts;
    std::size_t width;
    std::size_t classes;
    float deviation;  ///< Of initial weights.
    float dropout;    ///< Share; see Dropout.
    std::uint64_t seed;
    std::uint64_t dropout_layer;
  };

  TextClassHead(Device& device, ParameterSet& parameters, const Options& o)
      : pooler_(device, parameters, "pooler",
                {.rows = o.texts, .inputs = o.width, .outputs = o.width, .deviation = o.deviation}),
        tanh_(o.texts * o.width),
        dropout_({.samples = o.texts,
                  .width = o.width,
                  .mask = {.share = o.dropout, .seed = o.seed, .layer = o.dropout_layer}}),
        classifier_(
            device, parameters, "classifier",
            {.rows = o.texts, .inputs = o.width, .outputs = o.classes, .deviation = o.deviation}) {}

  std::span<const float> forward(std::span<const float> input, const Pass& pass) override {
    const auto pooled = tanh_.forward(pooler_.forward(input, pass), pass);
    return classifier_.forward(dropout_.forward(pooled, pass), pass);
  }
  std::span<const float> backward(std::span<const float> output_gradient) override {
    return pooler_.backward(
        tanh_.backward(dropout_.backward(classifier_.backward(output_gradient))));
  }

 private:
  Linear pooler_;
  Tanh tanh_;
  Dropout dropout_;
  Linear classifier_;
};

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
