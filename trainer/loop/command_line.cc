#include "trainer/loop/command_line.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "comm/base/error.h"
#include "runtime/tools/command_line.h"
#include "trainer/catalog.h"
#include "trainer/config.h"
#include "trainer/loop/learner.h"

namespace kolo::trainer {
namespace {

// The defaults of all other options depend on the model and its shape, so these are parsed first.
Config find_defaults(const Catalog& catalog, int argc, const char* const* argv) {
  CLI::App app;
  std::string model = Config{}.model;
  std::string shape;
  app.add_option("--model", model);
  app.add_option("--shape", shape);
  add_config_option(app);
  app.allow_extras();
  app.allow_config_extras(CLI::config_extras_mode::ignore);
  app.set_help_flag();
  return naming_config_file(app, [&] {
    app.parse(argc, argv);
    return default_config(catalog, model, shape);
  });
}

/// "NAME (help), NAME (help) …", each with what `more` says of it.
template <typename Entry, typename More>
std::string list(const Registry<Entry>& registry, const More& more) {
  std::string text;
  for (const Entry& entry : registry.entries()) {
    text += (text.empty() ? "" : "; ") + entry.name + ": " + entry.help + more(entry);
  }
  return text;
}

template <typename Entry>
std::string list(const Registry<Entry>& registry) {
  return list(registry, [](const Entry&) { return std::string(); });
}

/// An option that is on or off.
void add_switch(CLI::App& app, const std::string& name, bool& value, const std::string& help) {
  app.add_option(name, value, help)->type_name("on|off")->default_str(value ? "on" : "off");
}

void add_job_options(CLI::App& app, Config& c, const Catalog& catalog, DataOption data) {
  const std::vector<std::string> on_device = device_models();
  app.add_option("--model", c.model,
                 "Network, which sets the defaults of other options. " +
                     list(catalog.models, [&](const ModelEntry& model) -> std::string {
                       return std::ranges::count(on_device, model.name) > 0 ? " (also on cuda)"
                                                                            : "";
                     }));
  app.add_option("--task", c.task,
                 "Purpose, that of the model unless given. " + list(catalog.tasks));
  app.add_option("--data", c.data, "Data set: a file or a directory; see --format")
      ->required(data == DataOption::kRequired);
  app.add_option("--format", c.format,
                 "Kind of the data set, or auto: the first that the files look like. " +
                     list(catalog.datasets));
  app.add_option("--epochs", c.epochs, "Passes over the training data; at least 1");
  app.add_option("--steps", c.steps, "Training steps, in place of --epochs; at least 1");
  app.add_option("--batch", c.batch, "Samples per rank and pass; at least 1");
  app.add_option("--accumulate", c.accumulation,
                 "Passes per step, whose gradients add up before they are sent; at least 1");
  app.add_option("--uneven", c.uneven,
                 "What becomes of the last step of an epoch if it has fewer samples than the "
                 "others: pad: all ranks share them, and fill up their batches with rows that do "
                 "not count; drop: it is left out; join: the first ranks get whole batches, those "
                 "that get nothing wait in Kolo's join");
  app.add_option("--seed", c.seed, "Seed of initial weights, sample order and generated text");
  app.add_option("--threads", c.threads, "Compute threads per rank; at least 1")
      ->envname("KOLO_THREADS");
  app.add_option("--loader-threads", c.loader_threads,
                 "Threads per rank that prepare batches ahead; 0: none, and unless given 1 where a "
                 "core is free, else 0");
}

/// "MODEL: SHAPE, SHAPE …; MODEL: …".
std::string list_shapes(const Catalog& catalog) {
  std::string text;
  for (const ModelEntry& model : catalog.models.entries()) {
    for (const ModelShape& shape : model.shapes) {
      const bool is_first = &shape == &model.shapes.front();
      text += is_first ? (text.empty() ? "" : "; ") + model.name + ": " : std::string(", ");
      text += shape.name;
    }
  }
  return text;
}

void add_model_options(CLI::App& app, Config& c, const Catalog& catalog) {
  app.add_option("--shape", c.shape,
                 "A well-known size of the model, which sets the defaults of --layers, --width, "
                 "--heads, --context, --batch and --lr. " +
                     list_shapes(catalog));
  app.add_option("--layers", c.layers, "gpt, bert: number of transformer blocks; at least 1");
  app.add_option(
      "--width", c.width,
      "gpt, bert: elements per position, a multiple of --heads; models of texts and ratings: "
      "elements of the vector of a word, user or item; lstm: of its states, too");
  app.add_option("--heads", c.heads, "gpt, bert: number of attention heads; at least 1");
  app.add_option("--context", c.context, "gpt: tokens of text per sample; at least 1");
  app.add_option("--positions", c.positions,
                 "gpt: learned (a vector of each position) or rotary (queries and keys turn with "
                 "their position, which needs --device cpu)");
  add_switch(app, "--tied", c.tied,
             "gpt: on: the output layer multiplies by the table of the embedding; off, which "
             "needs --device cpu: by one of its own");
  app.add_option("--hidden", c.hidden, "image models: width of hidden dense layers; at least 1");
  app.add_option("--dropout", c.dropout,
                 "Share of elements that training drops at random, 0 to below 1; gpt, on --device "
                 "cpu: of embeddings, attention weights and what each block adds; models of "
                 "texts: before the output layer, and of bert before each sum");
  add_switch(app, "--row-gradients", c.row_gradients,
             "on: gradients of tables of words, users and items are the rows that a step used, "
             "and only these are sent and updated");
  add_switch(app, "--sync-batch-norm", c.sync_batch_norm,
             "on: batch norm takes its statistics over the samples of all ranks (resnet)");
}

void add_text_options(CLI::App& app, Config& c) {
  app.add_option("--tokenizer", c.tokenizer,
                 "Read texts with these vocabularies: a folder with vocab.json and merges.txt of "
                 "byte pairs, as GPT-2's, or with words.json; or a run, a checkpoint or a "
                 "safetensors file that came with some. Those that --weights came with go first, "
                 "and without either those of the data");
  app.add_option("--max-length", c.max_length,
                 "Texts: words that are read, with the mark of --text-marks; at least 1");
  app.add_option("--vocabulary", c.vocabulary,
                 "Texts: most frequent words that are told apart, with padding, unknown words and "
                 "marks at most this many; all unless given");
  app.add_option("--min-count", c.min_count,
                 "Texts: occurrences in the training data below which a word is unknown");
  add_switch(app, "--text-marks", c.text_marks,
             "Texts: on: the vocabulary has marks, [CLS] at the beginning of a text and [MASK] "
             "in place of a hidden word; bert needs them");
  app.add_option("--text-column", c.text_column, "csv, tsv, jsonl: column with the text");
  app.add_option("--label-column", c.label_column, "csv, tsv, jsonl: column with the label");
}

void add_optimizer_options(CLI::App& app, Config& c, const Catalog& catalog) {
  app.add_option("--optimizer", c.optimizer, list(catalog.optimizers));
  app.add_option("--lr", c.lr, "Highest learning rate; greater than 0");
  app.add_option("--final-lr-share", c.final_lr_share,
                 "Share of --lr that is left at the last step, 0 to 1");
  app.add_option("--lr-schedule", c.lr_schedule,
                 "Fall of the learning rate after its rise. " + list(catalog.lr_schedules));
  app.add_option("--warmup-steps", c.warmup_steps,
                 "Steps in which the learning rate rises linearly to --lr");
  app.add_option(
      "--lr-scaling", c.lr_scaling,
      "Factor of --lr for the number of ranks: none (1), linear (the ranks) or sqrt (their "
      "root)");
  app.add_option("--clip-norm", c.clip_norm, "Limit of the norm of all gradients; 0: none");
  app.add_option("--augment", c.augment,
                 "Random changes of training images, new in each epoch, with commas between them: "
                 "mirror (left and right, one image in two), crop (moved by up to 4 pixels each "
                 "way, over zeros)")
      ->type_name("NAME,NAME");
  app.add_option(
      "--shard", c.shard,
      "Memory that ranks share out: none; optimizer: each rank keeps the optimizer's state of its "
      "part of the weights, and updates that part (ZeRO-1); gradients: and keeps the gradients of "
      "that part only (ZeRO-2). On cpu, without --compression; --wire bfloat16 sends gradients in "
      "16 bits, and weights in 32");
  app.add_option("--label-smoothing", c.label_smoothing,
                 "Share of each target that is spread over all classes, 0 to below 1");
  app.add_option("--weight-decay", c.optimizer_options.weight_decay,
                 "Decay of matrices and kernels per step, times the learning rate; 0 or more");
  app.add_option("--decay-rules", c.decay_rules,
                 "Other decays by name: PATTERN=NUMBER,PATTERN=NUMBER; the first that fits counts");
  app.add_option("--momentum", c.optimizer_options.momentum, "sgd, lars: momentum, 0 to below 1");
  add_switch(app, "--nesterov", c.optimizer_options.nesterov, "on: sgd with Nesterov's momentum");
  app.add_option("--beta1", c.optimizer_options.beta1,
                 "adamw, lamb: decay of the first moment, 0 to below 1");
  app.add_option("--beta2", c.optimizer_options.beta2,
                 "adamw, lamb: decay of the second moment, 0 to below 1");
  app.add_option("--epsilon", c.optimizer_options.epsilon,
                 "adamw, lamb: added to the root of the second moment; greater than 0");
}

void add_goal_options(CLI::App& app, Config& c) {
  app.add_option("--weight-average", c.weight_average,
                 "Decay of a running mean of the weights, which is evaluated and kept in place of "
                 "the last weights; 0 to below 1, 0: none");
  app.add_option(
      "--target", c.target,
      "Ends training when the metric on held-out data is as good: 0.97 for an accuracy of "
      "97 %");
}

void add_precision_options(CLI::App& app, Config& c) {
  app.add_option(
         "--precision", c.precision,
         "Dtype of the operands of products: float32, bfloat16, or float16, which the processor "
         "emulates; weights, sums, norms and losses stay float32")
      ->type_name("DTYPE");
  app.add_option(
         "--gradients", c.gradients,
         "Dtype in which gradients of dense layers and the like are kept and sent, and read by the "
         "optimizer: float32, bfloat16, or auto: bfloat16 with --precision bfloat16 on the "
         "processor, unless --compression or --wire names something else")
      ->type_name("auto|DTYPE");
  app.add_option("--loss-scale", c.loss_scale,
                 "Factor on the loss against underflow: off, dynamic, a number greater than 0, or "
                 "auto (dynamic for --precision float16); all ranks skip a step that overflows")
      ->type_name("NAME|NUMBER");
  add_switch(app, "--cuda-graph", c.cuda_graph,
             "on: record the kernels of a step once and replay them (with --device cuda)");
}

void add_run_options(CLI::App& app, Config& c) {
  app.add_option(
      "--run", c.run,
      "Folder of this run, shared by all nodes, for its checkpoints, options and numbers; SIGTERM "
      "and SIGUSR1 then save a checkpoint and end the job with status 0");
  app.add_option("--checkpoint-every", c.checkpoint_every,
                 "Steps between checkpoints; 0: only at the end, and when a signal asks to stop");
  app.add_option(
      "--stop-after", c.stop_after,
      "Step after which the job saves a checkpoint and ends, to be resumed; needs --run");
  app.add_option("--keep", c.keep,
                 "Newest checkpoints that stay, beside the one with the lowest held-out loss; at "
                 "least 1");
  app.add_option(
         "--resume", c.resume,
         "auto: go on from the newest complete checkpoint of --run, if there is one; no; or "
         "the path of a checkpoint")
      ->type_name("auto|no|PATH");
  app.add_option("--weights", c.weights,
                 "Begin with these weights, a safetensors file or the folder of a checkpoint; gpt "
                 "also takes files with GPT-2's names");
  app.add_option("--weights-part", c.weights_part,
                 "all: the model and --weights have the same names; shared: what both have begins "
                 "with --weights, the rest of the model anew, and the program lists it");
  app.add_option("--export", c.export_file,
                 "Write the weights to this file at the end, as safetensors");
}

void add_report_options(CLI::App& app, Config& c) {
  app.add_option("--log-every", c.log_every, "Steps between lines of progress; at least 1");
  app.add_option("--eval-every", c.eval_every,
                 "Steps between evaluations on held-out data; 0: after each epoch");
  app.add_option("--eval-samples", c.eval_samples,
                 "Held-out samples of an evaluation, evenly spread; 0: all; unless given so many "
                 "that evaluations take about a tenth of the time of training");
  app.add_option("--progress", c.progress, "terminal (one line, updated in place), lines, or auto");
  app.add_option("--json", c.json, "Write the summary to this file");
  app.add_option("--sample", c.sample_bytes, "gpt: bytes of generated text at the end; 0: none");
  app.add_option("--temperature", c.temperature,
                 "gpt: randomness of generated text, 0 or more; 0: always the most likely token");
  app.add_option("--prompt", c.prompt,
                 "gpt: text that the generated text continues; a line break unless given")
      ->default_str("");
}

/// Whether one of the entries that `is_chosen` reads an option; those that do are added to
/// `owners`.
template <typename Entry, typename IsChosen>
bool is_read(const Registry<Entry>& registry, const IsChosen& is_chosen, const std::string& option,
             std::string_view registry_name, std::string& owners) {
  bool found = false;
  std::string names;
  for (const Entry& entry : registry.entries()) {
    if (std::ranges::find(entry.reads, option) == entry.reads.end()) continue;
    found |= is_chosen(entry);
    names += (names.empty() ? "" : ", ") + entry.name;
  }
  if (!names.empty()) {
    owners += fmt::format("{}{} {}", owners.empty() ? "" : ", or ", registry_name, names);
  }
  return found;
}

/// Errors: UsageError for an option that was changed and that nothing in this job reads, with what
/// it belongs to.
void require_read(const CLI::App& app, const Config& c, const Catalog& catalog) {
  const auto is_named = [](const std::string& name) {
    return [&name](const auto& entry) { return entry.name == name; };
  };
  // Data that is not there yet may be of any kind that the task takes.
  const DatasetEntry* const format = find_format(c, catalog);
  const TaskEntry& task = catalog.tasks.at(c.task);
  const auto may_be_format = [&](const DatasetEntry& entry) {
    return format == nullptr ? task.reads_data_of(entry.task) : entry.name == format->name;
  };
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || option->get_lnames().empty()) continue;
    const std::string& value = option->results().back();
    if (value == option->get_default_str()) continue;
    const std::string name = "--" + option->get_lnames().front();
    std::string owners;
    bool found = is_read(catalog.models, is_named(c.model), name, "--model", owners);
    found |= is_read(catalog.tasks, is_named(c.task), name, "--task", owners);
    found |= is_read(catalog.optimizers, is_named(c.optimizer), name, "--optimizer", owners);
    found |= is_read(catalog.datasets, may_be_format, name, "--format", owners);
    if (found || owners.empty()) continue;
    throw UsageError(fmt::format(
        "{} {} belongs to {}; this job has --model {}, --task {}, --optimizer {}{}, and would "
        "ignore it",
        name, value, owners, c.model, c.task, c.optimizer,
        format == nullptr ? std::string() : ", --format " + format->name));
  }
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv, const Catalog& catalog,
                               DataOption data) {
  CLI::App app(
      "Trains a model on all ranks of a job; start it alone or under mpirun.\n\n"
      "  kolo-train evaluate --weights FILE OPTIONS    loss and metric on held-out data\n"
      "  kolo-train generate --weights FILE OPTIONS    text that continues --prompt\n"
      "  kolo-train export CHECKPOINT FILE             its weights, as one safetensors file\n"
      "  kolo-train average FILE WEIGHTS...            the means of weights\n"
      "  kolo-train tokenize --data TEXT --out FOLDER  text as tokens, for --data of training\n"
      "  kolo-train sweep --vary lr=1e-3,3e-3 OPTIONS  trains with each, and compares\n\n"
      "OPTIONS are those of training; --config RUN/config.toml names those of a run.",
      "kolo-train");
  CommandLine result;
  try {
    result.config = find_defaults(catalog, argc, argv);
    Config& config = result.config;
    app.option_defaults()->always_capture_default();
    app.footer(help_footer());
    app.set_version_flag("--version", std::string("kolo-train " KOLO_VERSION));
    add_job_options(app, config, catalog, data);
    add_model_options(app, config, catalog);
    add_text_options(app, config);
    add_optimizer_options(app, config, catalog);
    add_goal_options(app, config);
    add_precision_options(app, config);
    add_run_options(app, config);
    add_report_options(app, config);
    add_runtime_options(app, config.runtime);
    add_config_option(app);
    naming_config_file(app, [&] {
      app.parse(argc, argv);
      validate(config, catalog);
      require_read(app, config, catalog);
    });
    result.settings = settings_of(app);
  } catch (const CLI::CallForHelp&) {
    result.text = app.help();
    return result;
  } catch (const CLI::CallForVersion& version) {
    result.text = std::string(version.what()) + "\n";
    return result;
  } catch (const CLI::ParseError& error) {
    throw UsageError(describe_usage_error(app, error) + " (--help lists all options)");
  }
  return result;
}

}  // namespace kolo::trainer
