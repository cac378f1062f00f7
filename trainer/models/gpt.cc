#include "trainer/models/gpt.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "trainer/config.h"
#include "trainer/errors.h"
#include "trainer/layers/elementwise.h"
#include "trainer/layers/linear.h"
#include "trainer/layers/normalization.h"
#include "trainer/layers/transformer_blocks.h"
#include "trainer/models/gpt_reader.h"

namespace kolo::trainer {
namespace {

/// Makes a shape of GPT-2. Learning rates are those of models of these sizes in Brown et al.,
/// "Language Models are Few-Shot Learners", 2020, table 2.1.
ModelShape shape(std::string name, std::size_t layers, std::size_t width, std::size_t heads,
                 float lr) {
  return {.name = std::move(name), .set = [=](Config& config) {
            config.layers = layers;
            config.width = width;
            config.heads = heads;
            config.context = 1024;
            config.lr = lr;
            config.batch = 1;  // the logits of one sequence take 200 MB with 50257 tokens
          }};
}

constexpr std::string_view kPrefix = "transformer.";
constexpr std::string_view kBlock = "block";

using Names = std::pair<std::string_view, std::string_view>;  // Gpt's, GPT-2's

constexpr Names kNames[] = {{"embedding.token", "wte.weight"},
                            {"embedding.position", "wpe.weight"},
                            {"final_norm.gain", "ln_f.weight"},
                            {"final_norm.bias", "ln_f.bias"},
                            {"output.weight", "lm_head.weight"}};

/// Names after the block number. In Gpt's names, "weight" is the weight of a dense layer.
constexpr Names kNamesInBlock[] = {{"attention_norm.gain", "ln_1.weight"},
                                   {"attention_norm.bias", "ln_1.bias"},
                                   {"query_key_value.weight", "attn.c_attn.weight"},
                                   {"query_key_value.bias", "attn.c_attn.bias"},
                                   {"project.weight", "attn.c_proj.weight"},
                                   {"project.bias", "attn.c_proj.bias"},
                                   {"inner_norm.gain", "ln_2.weight"},
                                   {"inner_norm.bias", "ln_2.bias"},
                                   {"expand.weight", "mlp.c_fc.weight"},
                                   {"expand.bias", "mlp.c_fc.bias"},
                                   {"contract.weight", "mlp.c_proj.weight"},
                                   {"contract.bias", "mlp.c_proj.bias"}};

std::optional<WeightLayout::Place> place_of(const std::string& parameter) {
  for (const auto& [ours, theirs] : kNames) {
    if (parameter != ours) continue;
    const std::string prefix(ours == "output.weight" ? "" : kPrefix);
    return WeightLayout::Place{.name = prefix + std::string(theirs)};
  }
  const std::size_t dot = parameter.find('.');
  if (!parameter.starts_with(kBlock) || dot == std::string::npos) return std::nullopt;
  const std::string number = parameter.substr(kBlock.size(), dot - kBlock.size());
  const std::string rest = parameter.substr(dot + 1);
  for (const auto& [ours, theirs] : kNamesInBlock) {
    if (rest != ours) continue;
    return WeightLayout::Place{
        .name = std::string(kPrefix) + "h." + number + "." + std::string(theirs),
        .is_transposed = ours.ends_with(".weight")};
  }
  return std::nullopt;
}

/// Whether the tensor of this name is an attention mask.
bool is_mask(std::string_view name) {
  return name.starts_with("h.") &&
         (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
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
      .deal =
          [](const Config& config) {
            return ModelDeal{.blocks = config.layers, .pieces = config.heads, .option = "--heads"};
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
  if (config.positions == "rotary" && config.width / config.heads % 2 != 0) {
    throw_config_error("--positions rotary: --width " + std::to_string(config.width) +
                       " over --heads " + std::to_string(config.heads) +
                       " gives heads of an odd width, which have no pairs");
  }
  return {.sequences = setting.batch,
          .context = tokens.elements(),
          .tokens = tokens.values,
          .model = config,
          .seed = config.seed,
          .ranks = setting.tensor,
          .stage = setting.stage,
          .parameters = setting.parameters};
}

Gpt::Gpt(Device& device, const Options& o)
    : Model(o.seed, o.parameters), options_(o), rows_(o.sequences * o.chunk.value_or(o.context)) {
  append_embedding();
  append_blocks(device);
  if (o.stage.is_last()) append_output(device);
}

void Gpt::append_embedding() {
  const Options& o = options_;
  const bool has_positions = o.model.positions != "rotary";
  if (!o.stage.is_first()) return parameters().leave_out(has_positions ? 2 : 1);
  embedding_.emplace(parameters(), "embedding",
                     Embedding::Options{.sequences = o.sequences,
                                        .length = o.context,
                                        .tokens = o.tokens,
                                        .width = o.model.width,
                                        .deviation = kTransformerDeviation,
                                        .has_positions = has_positions,
                                        .chunk = o.chunk,
                                        .ranks = o.ranks});
  layers_.append<Dropout>(Dropout::Options{.samples = o.sequences,
                                           .width = o.context * o.model.width,
                                           .mask = {.share = o.model.dropout, .seed = o.seed}});
}

void Gpt::append_blocks(Device& device) {
  const Options& o = options_;
  TransformerBlock::Options block{
      .attention = {.sequences = o.sequences,
                    .length = o.context,
                    .width = o.model.width,
                    .heads = o.model.heads,
                    .dropout = {.share = o.model.dropout, .seed = o.seed},
                    .chunk = o.chunk},
      .deviation = kTransformerDeviation,
      .residual_deviation =
          kTransformerDeviation / std::sqrt(2.0f * static_cast<float>(o.model.layers)),
      .has_rotary_positions = o.model.positions == "rotary",
      .ranks = o.ranks};
  for (std::size_t i = 0; i < o.model.layers; ++i) {
    block.attention.dropout.layer = 1 + i * TransformerBlock::kDropoutLayers;
    if (o.stage.has(i, o.model.layers)) {
      layers_.append<TransformerBlock>(device, parameters(), "block" + std::to_string(i), block);
    } else {
      parameters().leave_out(TransformerBlock::kParameters);
    }
  }
}

void Gpt::append_output(Device& device) {
  const Options& o = options_;
  layers_.append<LayerNorm>(parameters(), "final_norm", rows_, o.model.width);
  if (!o.model.tied) {
    layers_.append<Linear>(device, parameters(), "output",
                           Linear::Options{.rows = rows_,
                                           .inputs = o.model.width,
                                           .outputs = o.tokens,
                                           .deviation = kTransformerDeviation,
                                           .bias = false,
                                           .part = o.ranks.outputs(),
                                           .ranks = o.ranks});
  } else if (embedding_) {
    layers_.append<Linear>(device, embedding_->token(), rows_, o.ranks);
  } else {
    from_first_.emplace(std::nullopt);
    Parameter& token =
        from_first_->add("embedding.token", {o.tokens, o.model.width}, {}, o.ranks.outputs());
    from_first_->own_gradients();
    layers_.append<Linear>(device, token, rows_, o.ranks);
  }
}

Parameter* Gpt::shared_table() {
  if (from_first_) return &(*from_first_)[0];
  const Stage& stage = options_.stage;
  return options_.model.tied && embedding_ && !stage.is_last() ? &embedding_->token() : nullptr;
}

std::span<const float> Gpt::forward(std::span<const TensorView> inputs, const Pass& pass) {
  if (!embedding_) return layers_.forward(inputs[0].as<float>(), pass);
  return layers_.forward(embedding_->forward(inputs[0].as<std::int32_t>(), pass.past), pass);
}

void Gpt::backward(std::span<const float> output_gradient) {
  input_gradient_ = layers_.backward(output_gradient);
  if (embedding_) embedding_->backward(input_gradient_);
}

WeightLayout gpt2_layout() {
  return {.name = "gpt2",
          .help = "as GPT-2's published weights, from a gpt with learned positions",
          .prefix = std::string(kPrefix),
          .aliases = {{.name = "lm_head.weight",
                       .of = std::string(kPrefix) + "wte.weight",
                       .remedy = "--tied off"}},
          .needed = {"embedding.token", "embedding.position"},
          .place_of = place_of,
          .is_ignored = is_mask};
}

}  // namespace kolo::trainer
