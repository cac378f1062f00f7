#include "trainer/models/gpt.h"

#include <cmath>
#include <string>
#include <utility>

#include "trainer/config.h"
#include "trainer/config_error.h"
#include "trainer/models/generate.h"
#include "trainer/models/gpt2_layout.h"

namespace kolo::trainer {
namespace {

/// GPT-2's. The peak learning rates of models of these sizes are those of Brown et al., "Language
/// Models are Few-Shot Learners", 2020, table 2.1.
ModelShape shape(std::string name, std::size_t layers, std::size_t width, std::size_t heads,
                 float lr) {
  return {.name = std::move(name), .set = [=](Config& config) {
            config.layers = layers;
            config.width = width;
            config.heads = heads;
            config.context = 1024;
            config.lr = lr;
            config.batch = 1;  // logits alone take 200 MB for a sequence of 50257 kinds of tokens
          }};
}

}  // namespace

ModelEntry Gpt::entry() {
  return {
      .name = "gpt",
      .task = "language-model",
      .help = "transformer that predicts the next token of a text",
      .set_defaults =
          [](Config& config) {
            config.steps = 1000;
            config.lr = 3e-3f;
            config.warmup_steps = 50;
            config.clip_norm = 1.0;
            config.optimizer_options.weight_decay = 0.1f;
            config.eval_every = 250;
          },
      .make = [](const ModelSetting& setting,
                 Device& device) { return std::make_unique<Gpt>(device, options(setting)); },
      .generate =
          [](const ModelSetting& setting, const ParameterSet& weights) {
            const Config& config = setting.config;
            return generate(options(setting), weights, *setting.tokenizer,
                            {.bytes = config.sample_bytes,
                             .temperature = config.temperature,
                             .prompt = config.prompt,
                             .seed = config.seed});
          },
      .shapes = {shape("gpt2", 12, 768, 12, 6e-4f), shape("gpt2-medium", 24, 1024, 16, 3e-4f),
                 shape("gpt2-large", 36, 1280, 20, 2.5e-4f), shape("gpt2-xl", 48, 1600, 25, 2e-4f)},
      .layouts = {gpt2_layout()},
      .reads = {"--layers", "--width", "--heads", "--context", "--positions", "--tied", "--dropout",
                "--temperature", "--prompt"}};
}

Gpt::Options Gpt::options(const ModelSetting& setting) {
  const Config& config = setting.config;
  if (setting.format.inputs.size() != 1) {
    throw_config_error("--model gpt: it reads windows of tokens: choose --task language-model");
  }
  const Field& tokens = setting.format.inputs[0];
  if (config.width % config.heads != 0) {
    throw_config_error("--width " + std::to_string(config.width) +
                       " is not a multiple of --heads " + std::to_string(config.heads));
  }
  const bool is_rotary = config.positions == "rotary";
  if (is_rotary && config.width / config.heads % 2 != 0) {
    throw_config_error("--positions rotary: --width " + std::to_string(config.width) +
                       " over --heads " + std::to_string(config.heads) +
                       " gives heads of an odd width, which have no pairs");
  }
  return {.sequences = setting.batch,
          .context = tokens.elements(),
          .tokens = tokens.values,
          .layers = config.layers,
          .width = config.width,
          .heads = config.heads,
          .positions = is_rotary ? Positions::kRotary : Positions::kLearned,
          .is_tied = config.tied,
          .dropout = config.dropout,
          .seed = config.seed};
}

Gpt::Gpt(Device& device, const Options& o)
    : Model(o.seed),
      options_(o),
      embedding_dropout_({.samples = o.sequences,
                          .width = o.context * o.width,
                          .mask = {.share = o.dropout, .seed = o.seed}}) {
  constexpr float kDeviation = 0.02f;
  const bool is_rotary = o.positions == Positions::kRotary;
  embedding_ = std::make_unique<Embedding>(parameters(), "embedding",
                                           Embedding::Options{.sequences = o.sequences,
                                                              .length = o.context,
                                                              .tokens = o.tokens,
                                                              .width = o.width,
                                                              .deviation = kDeviation,
                                                              .has_positions = !is_rotary,
                                                              .chunk = o.chunk});
  TransformerBlock::Options block{
      .attention = {.sequences = o.sequences,
                    .length = o.context,
                    .width = o.width,
                    .heads = o.heads,
                    .dropout = {.share = o.dropout, .seed = o.seed},
                    .chunk = o.chunk},
      .deviation = kDeviation,
      .residual_deviation = kDeviation / std::sqrt(2.0f * static_cast<float>(o.layers)),
      .has_rotary_positions = is_rotary};
  const std::size_t rows = block.attention.rows();
  for (std::size_t i = 0; i < o.layers; ++i) {
    block.attention.dropout.layer = 1 + i * TransformerBlock::kDropoutLayers;
    blocks_.emplace_back(device, parameters(), "block" + std::to_string(i), block);
  }
  final_norm_ = std::make_unique<LayerNorm>(parameters(), "final_norm", rows, o.width);
  if (o.is_tied) {
    output_ = std::make_unique<Linear>(device, embedding_->token(), rows);
  } else {
    output_ = std::make_unique<Linear>(device, parameters(), "output",
                                       Linear::Options{.rows = rows,
                                                       .inputs = o.width,
                                                       .outputs = o.tokens,
                                                       .deviation = kDeviation,
                                                       .bias = false});
  }
}

std::span<const float> Gpt::forward(std::span<const TensorView> inputs, const Pass& pass) {
  std::span<const float> x = embedding_->forward(inputs[0].as<std::int32_t>(), pass.past);
  x = embedding_dropout_.forward(x, pass);
  for (TransformerBlock& block : blocks_) x = block.forward(x, pass);
  return output_->forward(final_norm_->forward(x, pass), pass);
}

void Gpt::backward(std::span<const float> output_gradient) {
  std::span<const float> gradient = final_norm_->backward(output_->backward(output_gradient));
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
    gradient = block->backward(gradient);
  }
  embedding_->backward(embedding_dropout_.backward(gradient));
}

}  // namespace kolo::trainer
