#include "trainer/config.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trainer/catalog.h"
#include "trainer/data/augmentation.h"
#include "trainer/errors.h"
#include "trainer/precision/precision.h"
#include "trainer/text/vocabulary.h"

namespace kolo::trainer {
namespace {

constexpr std::size_t kMostLoaderThreads = 64;
constexpr std::size_t kSmallestVocabulary = 3;  // padding, unknown, and a word

void require(bool condition, const std::string& what) {
  if (!condition) throw_config_error(what);
}

void require_choice(std::string_view option, const std::string& text,
                    const std::vector<std::string>& names) {
  if (std::ranges::find(names, text) == names.end()) throw_unknown_choice(option, text, names);
}

// Options whose values have the same bounds.
void validate_numbers(const Config& c) {
  const OptimizerOptions& o = c.optimizer_options;
  require(c.threads > 0, "--threads must be at least 1");
  for (const auto& [option, value] : {std::pair("--batch", c.batch),
                                      {"--accumulate", c.accumulation},
                                      {"--log-every", c.log_every},
                                      {"--hidden", c.hidden},
                                      {"--keep", c.keep},
                                      {"--stop-after", c.stop_after.value_or(1)}}) {
    require(value > 0, fmt::format("{} must be at least 1", option));
  }
  for (const auto& [option, value] : {std::pair("--label-smoothing", c.label_smoothing),
                                      {"--weight-average", c.weight_average},
                                      {"--momentum", o.momentum},
                                      {"--beta1", o.beta1},
                                      {"--beta2", o.beta2},
                                      {"--dropout", c.dropout}}) {
    require(value >= 0.0f && value < 1.0f,
            fmt::format("{} must be at least 0 and below 1", option));
  }
  for (const auto& [option, value] : {std::pair("--lr", double{c.lr}),
                                      {"--epsilon", o.epsilon},
                                      {"--clip-norm", c.clip_norm},
                                      {"--weight-decay", o.weight_decay},
                                      {"--temperature", c.temperature}}) {
    require(std::isfinite(value), fmt::format("{} must be a finite number", option));
    require(value >= 0.0, fmt::format("{} must not be negative", option));
  }
  require(c.lr > 0.0f, "--lr must be greater than 0");
  require(o.epsilon > 0.0f, "--epsilon must be greater than 0");
}

std::string gradients_setting(const Config& c) {
  return c.gradients == "auto" ? c.gradients : std::string(to_string(parse_gradients(c.gradients)));
}

}  // namespace

Config default_config(const Catalog& catalog, const std::string& model, const std::string& shape) {
  const ModelEntry& entry = catalog.models.at(model);
  Config config;
  config.model = entry.name;
  config.task = entry.task;
  entry.set_defaults(config);
  if (shape.empty()) return config;
  require(!entry.shapes.empty(), fmt::format("--shape {}: --model {} has no shapes", shape, model));
  const auto found = std::ranges::find(entry.shapes, shape, &ModelShape::name);
  if (found == entry.shapes.end()) {
    std::vector<std::string> names;
    for (const ModelShape& known : entry.shapes) names.push_back(known.name);
    throw_unknown_choice("--shape", shape, names);
  }
  config.shape = shape;
  found->set(config);
  return config;
}

void validate(const Config& c, const Catalog& catalog) {
  catalog.models.at(c.model);
  catalog.tasks.at(c.task);
  if (c.format != "auto") catalog.datasets.at(c.format);
  catalog.optimizers.at(c.optimizer);
  catalog.lr_schedules.at(c.lr_schedule);
  require_choice("--lr-scaling", c.lr_scaling, {"none", "linear", "sqrt"});
  require_choice("--positions", c.positions, {"learned", "rotary"});
  require_choice("--progress", c.progress, {"auto", "terminal", "lines"});
  parse_uneven(c.uneven);
  require(
      c.uneven != "join" || c.shard == "none",
      fmt::format("--uneven join with --shard {}: a rank that has joined cannot send its part of "
                  "the weights; set --uneven pad, or --shard none",
                  c.shard));
  require_choice("--shard", c.shard, {"none", "optimizer", "gradients"});
  require(
      c.shard != "gradients" || c.accumulation == 1,
      fmt::format("--shard gradients with --accumulate {}: passes add up in whole gradients; set "
                  "--shard optimizer, or --accumulate 1",
                  c.accumulation));
  require(c.loader_threads.value_or(0) <= kMostLoaderThreads,
          fmt::format("--loader-threads must be at most {}", kMostLoaderThreads));
  require(c.steps ? *c.steps > 0 : c.epochs > 0, "--steps and --epochs must be at least 1");
  validate_numbers(c);
  require(c.final_lr_share >= 0.0f && c.final_lr_share <= 1.0f,
          "--final-lr-share must be between 0 and 1");
  require(!c.target || std::isfinite(*c.target), "--target must be a finite number");
  parse_decay_rules(c.decay_rules);
  const std::size_t shortest = c.text_marks ? 2 : 1;
  require(c.max_length >= shortest, fmt::format("--max-length must be at least {}", shortest));
  const std::size_t smallest = c.text_marks ? Vocabulary::kMarked + 1 : kSmallestVocabulary;
  require(c.vocabulary.value_or(smallest) >= smallest,
          fmt::format("--vocabulary must be at least {}", smallest));
  require(c.layers > 0 && c.context > 0, "--layers and --context must be at least 1");
  require(c.heads > 0 && c.width > 0, "--width and --heads must be at least 1");
  require_choice("--weights-part", c.weights_part, {"all", "shared"});
  require(c.weights_part == "all" || !c.weights.empty(),
          "--weights-part shared: needs --weights FILE");
  require(!c.run.empty() || c.checkpoint_every == 0, "--checkpoint-every: needs --run DIR");
  require(!c.run.empty() || !c.stop_after, "--stop-after: needs --run DIR");
  require(!c.run.empty() || c.resume != "auto", "--resume auto: needs --run DIR");
  require(!c.prompt.empty(), "--prompt must hold at least one byte");
  gradients_setting(c);
  parse_augmentation(c.augment);
  update_options(c);
}

UpdateGate::Options update_options(const Config& config) {
  return {.clip_norm = config.clip_norm,
          .loss_scale = parse_loss_scale(config.loss_scale, parse_precision(config.precision))};
}

float peak_lr(const Config& config, int ranks) {
  if (config.lr_scaling == "linear") return config.lr * static_cast<float>(ranks);
  if (config.lr_scaling == "sqrt") return config.lr * std::sqrt(static_cast<float>(ranks));
  return config.lr;
}

Uneven parse_uneven(const std::string& text) {
  require_choice("--uneven", text, {"pad", "drop", "join"});
  if (text == "drop") return Uneven::kDrop;
  return text == "join" ? Uneven::kJoin : Uneven::kPad;
}

std::size_t total_steps(const Config& config, std::size_t samples, int ranks) {
  const Sharding sharding(samples, static_cast<std::size_t>(ranks),
                          config.batch * config.accumulation, parse_uneven(config.uneven));
  require(sharding.steps() > 0,
          fmt::format("--uneven drop: {} training samples do not fill a step, which takes --batch "
                      "{} times --accumulate {} from each of {} ranks; choose a smaller --batch",
                      samples, config.batch, config.accumulation, ranks));
  return config.steps.value_or(config.epochs * sharding.steps());
}

std::size_t evaluation_samples(const Config& config, std::size_t all, std::size_t every,
                               int ranks) {
  if (config.eval_samples == 0) return all;
  const std::size_t trained =
      every * config.accumulation * config.batch * static_cast<std::size_t>(ranks);
  // Without the backward pass, which takes twice as long, a sample takes a third of the time.
  return std::min(all, config.eval_samples.value_or(std::max<std::size_t>(1, 3 * trained / 10)));
}

std::vector<Setting> course_settings(const Config& c) {
  const OptimizerOptions& o = c.optimizer_options;
  const LossScaler::Options scaling = update_options(c).loss_scale;
  const auto text = [](const auto& value) { return fmt::format("{}", value); };
  std::vector<Setting> settings = {
      {"--task", c.task},
      {"--format", c.format},
      {"--uneven", c.uneven},
      {"--seed", text(c.seed)},
      {"--optimizer", c.optimizer},
      {"--momentum", text(o.momentum)},
      {"--nesterov", o.nesterov ? "on" : "off"},
      {"--beta1", text(o.beta1)},
      {"--beta2", text(o.beta2)},
      {"--epsilon", text(o.epsilon)},
      {"--weight-decay", text(o.weight_decay)},
      {"--decay-rules", c.decay_rules},
      {"--lr-schedule", c.lr_schedule},
      {"--final-lr-share", text(c.final_lr_share)},
      {"--warmup-steps", text(c.warmup_steps)},
      {"--clip-norm", text(c.clip_norm)},
      {"--augment", name_of(parse_augmentation(c.augment))},
      {"--label-smoothing", text(c.label_smoothing)},
      {"--weight-average", text(c.weight_average)},
      {"--layers", text(c.layers)},
      {"--width", text(c.width)},
      {"--heads", text(c.heads)},
      {"--context", text(c.context)},
      {"--positions", c.positions},
      {"--tied", c.tied ? "on" : "off"},
      {"--hidden", text(c.hidden)},
      {"--dropout", text(c.dropout)},
      {"--row-gradients", c.row_gradients ? "on" : "off"},
      {"--sync-batch-norm", c.sync_batch_norm ? "on" : "off"},
      {"--max-length", text(c.max_length)},
      {"--vocabulary", c.vocabulary ? text(*c.vocabulary) : "all words"},
      {"--min-count", text(c.min_count)},
      {"--text-column", c.text_column},
      {"--label-column", c.label_column},
      {"--precision", std::string(to_string(parse_precision(c.precision)))},
      {"--gradients", gradients_setting(c)},
      {"--loss-scale", fmt::format("{} {}", static_cast<int>(scaling.mode), scaling.scale)}};
  // Not of jobs without it, whose checkpoints may be older than the option.
  if (c.text_marks) settings.push_back({"--text-marks", "on"});
  return settings;
}

std::vector<Setting> common_settings(const Config& c) {
  const auto text = [](const auto& value) { return fmt::format("{}", value); };
  std::vector<Setting> settings = {
      {"--model", c.model},
      {"--shard", c.shard},
      {"--epochs", text(c.epochs)},
      {"--steps", c.steps ? text(*c.steps) : "by --epochs"},
      {"--batch", text(c.batch)},
      {"--accumulate", text(c.accumulation)},
      {"--lr", text(c.lr)},
      {"--lr-scaling", c.lr_scaling},
      {"--target", c.target ? text(*c.target) : "none"},
      {"--log-every", text(c.log_every)},
      {"--eval-every", text(c.eval_every)},
      {"--eval-samples", c.eval_samples ? text(*c.eval_samples) : "auto"},
      {"--weights", c.weights.string()},
      {"--weights-part", c.weights_part},
      {"the hash of the vocabularies", fmt::format("{:016x}", c.text_files.hash())},
      {"--run", c.run.string()},
      {"--checkpoint-every", text(c.checkpoint_every)},
      {"--keep", text(c.keep)},
      {"--stop-after", c.stop_after ? text(*c.stop_after) : "none"},
      {"--resume", c.resume},
      {"--text-marks", c.text_marks ? "on" : "off"}};
  for (Setting& setting : course_settings(c)) {
    if (setting.option != "--text-marks") settings.push_back(std::move(setting));
  }
  return settings;
}

}  // namespace kolo::trainer
