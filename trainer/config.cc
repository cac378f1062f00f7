#include "trainer/config.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
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

void require(bool condition, const std::string& what) {
  if (!condition) throw_config_error(what);
}

/// The value of an option in the form in which ranks and runs compare it.
std::string compared(const Config& config, const ConfigOption& option) {
  if (option.name == "--vocabulary" && !config.vocabulary) return "all words";
  if (option.name == "--every") return std::to_string(exchange_every(config));
  if (option.name != "--loss-scale") return option.text();
  const LossScaler::Options scaling = update_options(config).loss_scale;
  return fmt::format("{} {}", static_cast<int>(scaling.mode), scaling.scale);
}

/// Checks the options of exchanges. Errors: KoloError(kConfig) naming options that exclude each
/// other.
void require_exchange(const Config& c) {
  Config copy = c, unchanged;
  const std::vector<ConfigOption> options = exchange_options(copy);
  const std::vector<ConfigOption> defaults = exchange_options(unchanged);
  for (std::size_t i = 1; i < options.size(); ++i) {  // 0 is --exchange
    const std::string& name = options[i].name;
    const std::string readers = name.starts_with("--outer") ? "diloco"
                                : name == "--staleness"     ? "async"
                                                            : "local or diloco";
    require(options[i].text() == defaults[i].text() || readers.find(c.exchange) != readers.npos,
            fmt::format("{} {}: needs --exchange {}", name, options[i].text(), readers));
  }
  if (!has_local_steps(c) && !is_asynchronous(c)) return;
  const std::string with = "--exchange " + c.exchange + " with ";
  require(c.shard == "none", with + "--shard: ranks take no step together; set --shard none");
  require(c.uneven != "join", with + "--uneven join: no rank waits in a join; set --uneven pad");
  require(c.weight_average == 0.0f,
          with + "--weight-average: the running means of ranks would differ; leave it out");
  require(update_options(c).loss_scale.mode == LossScaler::Mode::kOff,
          with +
              "a loss scale: ranks would skip different steps; set --loss-scale off, or "
              "--precision bfloat16");
  require(!c.sync_batch_norm,
          with + "--sync-batch-norm on: each step would wait for all ranks; set it off");
  require(!is_asynchronous(c) || parsed_gradients(c.gradients) != "bfloat16",
          with + "--gradients bfloat16: owners take float32; set --gradients float32");
  require(c.fragments <= exchange_every(c),
          fmt::format("--fragments {} with --every {}: each needs a step of its own", c.fragments,
                      exchange_every(c)));
  require(
      c.overlap < exchange_every(c) / c.fragments,
      fmt::format("--overlap {} with --every {} and --fragments {}: one exchange is under way at "
                  "a time, so --overlap must be below {}",
                  c.overlap, exchange_every(c), c.fragments, exchange_every(c) / c.fragments));
}

/// Checks --balance. Errors: KoloError(kConfig) naming an option that excludes unequal batches.
void require_balance(const Config& c) {
  if (c.balance == "off") return;
  require(c.uneven != "join",
          "--balance with --uneven join: ranks that join have no samples; set --uneven pad");
  require(!has_local_steps(c) && !is_asynchronous(c),
          fmt::format("--balance with --exchange {}: ranks would take own steps of unequal length; "
                      "set --exchange dense",
                      c.exchange));
  require(c.balance != "auto" || !c.sync_batch_norm,
          "--balance auto with --sync-batch-norm on: all ranks wait for the slowest in every pass, "
          "so that their times are equal; set it off, or name the rates");
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
  Config copy = c;
  for (const ConfigOption& option : options_of(copy)) option.check_value();
  require(
      c.uneven != "join" || c.shard == "none",
      fmt::format("--uneven join with --shard {}: a rank that has joined cannot send its part of "
                  "the weights; set --uneven pad, or --shard none",
                  c.shard));
  require(
      c.uneven != "join" || !c.sync_batch_norm,
      "--uneven join with --sync-batch-norm on: its sums take samples of all ranks as equal, and "
      "ranks weigh theirs differently; set --uneven pad, or --sync-batch-norm off");
  require(
      c.shard != "gradients" || c.accumulation == 1,
      fmt::format("--shard gradients with --accumulate {}: passes add up in whole gradients; set "
                  "--shard optimizer, or --accumulate 1",
                  c.accumulation));
  require(!c.text_marks || c.max_length > 1,
          "--max-length must be at least 2 with --text-marks on");
  const std::size_t smallest = c.text_marks ? Vocabulary::kMarked + 1 : 0;
  require(c.vocabulary.value_or(smallest) >= smallest,
          fmt::format("--vocabulary must be at least {} with --text-marks on", smallest));
  require(c.weights_part == "all" || !c.weights.empty(),
          "--weights-part shared: needs --weights FILE");
  require(!c.run.empty() || c.checkpoint_every == 0, "--checkpoint-every: needs --run DIR");
  require(!c.run.empty() || !c.stop_after, "--stop-after: needs --run DIR");
  require(!c.run.empty() || c.resume != "auto", "--resume auto: needs --run DIR");
  require(!c.prompt.empty(), "--prompt must hold at least one byte");
  require_exchange(c);
  require_balance(c);
  update_options(c);
}

std::vector<ConfigOption> options_of(Config& c) {
  std::vector<ConfigOption> all = job_options(c);
  for (const auto& more : {model_options(c), data_options(c), learning_options(c),
                           exchange_options(c), run_options(c)}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

std::string parsed_precision(const std::string& text) {
  return std::string(to_string(parse_precision(text)));
}

std::string parsed_gradients(const std::string& text) {
  return text == "auto" ? text : std::string(to_string(parse_gradients(text)));
}

std::string parsed_augmentation(const std::string& text) {
  return name_of(parse_augmentation(text));
}

std::string parsed_decay_rules(const std::string& text) {
  parse_decay_rules(text);
  return text;
}

std::string parsed_balance(const std::string& text) {
  parse_rates(text);
  return text;
}

std::vector<double> parse_rates(const std::string& text) {
  std::vector<double> rates;
  if (text == "off" || text == "auto") return rates;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    char* rest = nullptr;
    const double rate = std::strtod(part.c_str(), &rest);
    if (part.empty() || *rest != '\0' || !std::isfinite(rate) || rate <= 0.0) {
      throw_config_error(fmt::format(
          "--balance {}: name off, auto, or the rates of all ranks, such as 2,1,1", text));
    }
    rates.push_back(rate);
    begin = end + 1;
  }
  return rates;
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

std::size_t exchange_every(const Config& config) {
  return config.every.value_or(config.exchange == "diloco" ? 100 : 8);
}

Uneven parse_uneven(const std::string& text) {
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
  // Per sample, evaluation takes a third of the time of training: it has no backward pass, which
  // takes twice as long as the forward pass.
  return std::min(all, config.eval_samples.value_or(std::max<std::size_t>(1, 3 * trained / 10)));
}

std::vector<Setting> course_settings(const Config& config) {
  Config copy = config, unchanged;
  const std::vector<ConfigOption> options = options_of(copy), defaults = options_of(unchanged);
  std::vector<Setting> settings;
  for (std::size_t i = 0; i < options.size(); ++i) {
    const ConfigOption& option = options[i];
    const bool is_left_out = (option.traits & kNewer) != 0 && option.text() == defaults[i].text();
    if ((option.traits & (kOfRanks | kOfRank)) != 0 || is_left_out) continue;
    settings.push_back({option.name, compared(config, option)});
  }
  return settings;
}

std::vector<Setting> common_settings(const Config& config) {
  Config copy = config;
  std::vector<Setting> settings = {
      {"the hash of the vocabularies", fmt::format("{:016x}", config.text_files.hash())}};
  for (const ConfigOption& option : options_of(copy)) {
    if ((option.traits & kOfRank) == 0) settings.push_back({option.name, compared(config, option)});
  }
  return settings;
}

}  // namespace kolo::trainer
