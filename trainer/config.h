#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/options/options.h"
#include "trainer/checkpoint/job_identity.h"
#include "trainer/config_option.h"
#include "trainer/data/dataset.h"
#include "trainer/model_options.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/optimizer/update_gate.h"
#include "trainer/text/tokenizer.h"

namespace kolo::trainer {

struct Catalog;

/// Everything that defines a training job.
struct Config : ModelOptions {
  std::string model = "gpt";    ///< A name in `Catalog::models`.
  std::string task;             ///< A name in `Catalog::tasks`; by default the model's task.
  std::string format = "auto";  ///< A name in `Catalog::datasets`, or "auto"; see `find_format`.
  std::filesystem::path data;   ///< Path of the data set: a file or a directory.
  std::filesystem::path tokenizer;  ///< Path of vocabularies for texts; see `vocabularies_at`.
  TextFiles text_files;             ///< Vocabularies; if empty, they are built from the data.

  std::size_t epochs = 1;
  std::optional<std::size_t> steps;  ///< Number of steps; empty if `epochs` counts.
  std::size_t batch = 16;            ///< Samples per rank in one backward pass.
  std::size_t accumulation = 1;      ///< Backward passes per step; their gradients add up.
  std::string mesh = "auto";         ///< Axes along which ranks share the work; see `parse_mesh`.
  std::string uneven = "pad";        ///< "pad", "drop" or "join"; see `Uneven`.
  std::string balance = "off";       ///< "off", "auto", or the rates of all ranks; see `Balance`.
  std::uint64_t seed = 1;
  int threads = 1;                            ///< Threads of the mathematics library per rank.
  std::optional<std::size_t> loader_threads;  ///< Threads of `DataLoader`; empty: it decides.

  std::string optimizer = "adamw";
  OptimizerOptions optimizer_options;
  float lr = 1e-3f;                    ///< Highest learning rate.
  std::string lr_schedule = "cosine";  ///< A name in `Catalog::lr_schedules`.
  float final_lr_share = 0.1f;         ///< Learning rate of the last step as a share of `lr`.
  std::size_t warmup_steps = 0;
  std::string lr_scaling = "none";   ///< "none", "linear" or "sqrt"; see `peak_lr`.
  double clip_norm = 0.0;            ///< Limit of the norm of all gradients; 0: no limit.
  std::string decay_rules;           ///< See `parse_decay_rules`.
  std::string shard = "none";        ///< State divided among ranks; see ShardOptions.
  std::string exchange = "dense";    ///< Mode: "dense", "local", "diloco" or "async".
  std::optional<std::size_t> every;  ///< Steps between exchanges; see `exchange_every`.
  std::size_t local_after = 0;       ///< Number of dense steps before the first local step.
  std::string local_unit = "rank";   ///< Unit that takes local steps: "rank" or "node".
  float outer_lr = 0.7f;             ///< Learning rate of the outer optimizer of "diloco".
  float outer_momentum = 0.9f;       ///< Momentum of the outer optimizer of "diloco".
  std::size_t fragments = 1;         ///< Number of parts of the weights, exchanged in turn.
  std::size_t overlap = 0;           ///< Steps of training during which an exchange is in flight.
  float weight_average = 0.0f;       ///< Decay of the running mean of the weights; 0: no mean.
  std::optional<double> target;      ///< Value of the task's metric at which training ends.
  std::string augment;               ///< See `parse_augmentation`.
  float label_smoothing = 0.0f;      ///< For tasks with classes; see SoftmaxCrossEntropy.

  /// Steps by which a rank may be ahead with "async"; empty: any number; 0: as "dense".
  std::optional<std::size_t> staleness;

  std::string precision = "float32";  ///< See `parse_precision`.
  std::string gradients = "auto";     ///< See `gradient_dtype`.
  std::string loss_scale = "auto";    ///< See `parse_loss_scale`.
  bool cuda_graph = false;  ///< Whether the kernels of a GPU step are recorded once and replayed.
  std::string attention = "auto";  ///< How a GPU computes attention; see `cuda::AttentionMode`.

  std::string shape;                      ///< A name in `ModelEntry::shapes`; empty: none.
  std::size_t context = 64;               ///< Tokens per sample of gpt.
  std::size_t max_length = 128;           ///< Largest number of words per text sample.
  std::optional<std::size_t> vocabulary;  ///< Largest number of vocabulary entries, if limited.
  std::size_t min_count = 2;  ///< Occurrences in the training texts that a word needs for an entry.
  bool text_marks = false;    ///< Whether texts begin with [CLS] and the vocabulary has [MASK].
  std::string text_column = "text";  ///< Name of the column with the text, in tables of texts.
  std::string label_column = "label";

  std::size_t log_every = 50;  ///< Steps between lines of progress.
  std::size_t eval_every = 0;  ///< Steps between evaluations; 0: one at the end of each epoch.
  std::optional<std::size_t> eval_samples;  ///< Samples per evaluation; see `evaluation_samples`.
  std::string progress = "auto";  ///< Form of the progress report: "auto", "terminal" or "lines".
  std::filesystem::path json;     ///< File to which the summary is written; empty: none.

  std::filesystem::path run;         ///< Folder for the run's checkpoints; empty: nothing is saved.
  std::size_t checkpoint_every = 0;  ///< Steps between checkpoints; 0: only when the job ends.
  std::optional<std::size_t> stop_after;  ///< Step after which the job saves and ends.
  std::size_t keep = 3;                   ///< Number of newest checkpoints to keep, at least 1.
  std::string resume = "no";  ///< Checkpoint to resume from: "auto", "no" or a path; see `resume`.
  std::filesystem::path weights;      ///< File or checkpoint of initial weights; empty: random.
  std::string weights_part = "all";   ///< "all" or "shared"; see `import_weights`.
  std::filesystem::path export_file;  ///< File to which the final weights are written; empty: none.

  std::size_t sample_bytes = 400;  ///< Bytes of text that gpt generates after training; 0: none.
  double temperature = 0.8;
  std::string prompt = "\n";

  Options runtime;
};

/// Converts an option's text to the canonical form in which ranks and runs compare it. Errors:
/// those of `parse_precision`, `parse_gradients`, `parse_augmentation`, `parse_decay_rules` and
/// `parse_rates`.
std::string parsed_precision(const std::string& text);
std::string parsed_gradients(const std::string& text);
std::string parsed_augmentation(const std::string& text);
std::string parsed_decay_rules(const std::string& text);
std::string parsed_balance(const std::string& text);

// To add an option, add a field above and its row here. On the command line, the names that the
// catalog offers follow the help text.

inline std::vector<ConfigOption> job_options(Config& c) {
  return {
      {"--model", &c.model, kAny, kOfRanks, "Network, which sets the defaults of other options"},
      {"--shape", &c.shape, kAny, kOfRank,
       "A well-known size of the model, which sets the defaults of --layers, --width, --heads, "
       "--context, --batch and --lr"},
      {"--task", &c.task, "Purpose, that of the model unless given"},
      {"--data", &c.data, kAny, kOfRank, "Data set: a file or a directory; see --format"},
      {"--format", &c.format, "Kind of the data set, or auto: the first that the files look like"},
      {"--epochs", &c.epochs, kAtLeastOne, kOfRanks, "Passes over the training data"},
      {"--steps", &c.steps, kAtLeastOne, kOfRanks, "Training steps, in place of --epochs"},
      {"--batch", &c.batch, kAtLeastOne, kOfRanks,
       "Samples per rank and pass; auto: as --balance auto"},
      {"--accumulate", &c.accumulation, kAtLeastOne, kOfRanks,
       "Passes per step, whose gradients add up before they are sent"},
      {"--mesh", &c.mesh, TextForm{"AXIS=N,..."}, kOfRanks | kNotOnGpus,
       "How ranks share the work: data=N,tensor=N,pipeline=N; data ranks have different samples, "
       "tensor ranks deal out each block of gpt and mlp, pipeline stages have ranges of blocks, "
       "and the passes of --accumulate flow through them; auto: all ranks are data ranks"},
      {"--uneven", &c.uneven, Choices{"pad", "drop", "join"},
       "What becomes of the last step of an epoch if it has fewer samples than the others: pad: "
       "all ranks share them, and fill up their batches with rows that do not count; drop: it is "
       "left out; join: the first ranks get whole batches, those that get nothing wait in Kolo's "
       "join"},
      {"--balance", &c.balance, TextForm{"off|auto|RATES", parsed_balance}, kOfRanks | kNotOnGpus,
       "How samples are dealt out, --batch per rank on average: off: equally; auto: by speed, "
       "measured in every 20 steps; or by these rates of all ranks: 2,1,1"},
      {"--seed", &c.seed, "Seed of initial weights, sample order and generated text"},
      {"--threads", &c.threads, kAtLeastOne, kOfRank, "Compute threads per rank"},
      {"--loader-threads", &c.loader_threads, ConfigRange{.least = 0, .most = 64}, kOfRank,
       "Threads per rank that prepare batches ahead; 0: none, and unless given 1 where a core is "
       "free, else 0"},
  };
}

inline std::vector<ConfigOption> data_options(Config& c) {
  return {
      {"--tokenizer", &c.tokenizer, kAny, kOfRank,
       "Read texts with these vocabularies: a folder with vocab.json and merges.txt of byte pairs, "
       "as GPT-2's, or with words.json; or a run, a checkpoint or a safetensors file that came "
       "with some. Those that --weights came with go first, and without either those of the data"},
      {"--context", &c.context, kAtLeastOne, "gpt: tokens of text per sample"},
      {"--max-length", &c.max_length, kAtLeastOne,
       "Texts: words that are read, with the mark of --text-marks"},
      {"--vocabulary", &c.vocabulary, ConfigRange{.least = 3},
       "Texts: most frequent words that are told apart, with padding, unknown words and marks at "
       "most this many; all unless given"},
      {"--min-count", &c.min_count,
       "Texts: occurrences in the training data below which a word is unknown"},
      {"--text-marks", &c.text_marks, kAny, kNewer,
       "Texts: on: the vocabulary has marks, [CLS] at the beginning of a text and [MASK] in place "
       "of a hidden word; bert needs them"},
      {"--text-column", &c.text_column, "csv, tsv, jsonl: column with the text"},
      {"--label-column", &c.label_column, "csv, tsv, jsonl: column with the label"},
  };
}

inline std::vector<ConfigOption> learning_options(Config& c) {
  OptimizerOptions& o = c.optimizer_options;
  return {
      {"--optimizer", &c.optimizer, "How gradients become new weights"},
      {"--lr", &c.lr, kPositive, kOfRanks, "Highest learning rate"},
      {"--final-lr-share", &c.final_lr_share, kShare,
       "Share of --lr that is left at the last step"},
      {"--lr-schedule", &c.lr_schedule, "Fall of the learning rate after its rise"},
      {"--warmup-steps", &c.warmup_steps,
       "Steps in which the learning rate rises linearly to --lr"},
      {"--lr-scaling", &c.lr_scaling, Choices{"none", "linear", "sqrt"}, kOfRanks,
       "Factor of --lr for the number of ranks: none (1), linear (the ranks) or sqrt (their root)"},
      {"--clip-norm", &c.clip_norm, kNotNegative, "Limit of the norm of all gradients; 0: none"},
      {"--augment", &c.augment, TextForm{"NAME,NAME", parsed_augmentation},
       "Random changes of training images, new in each epoch, with commas between them: mirror "
       "(left and right, one image in two), crop (moved by up to 4 pixels each way, over zeros)"},
      {"--shard", &c.shard, Choices{"none", "optimizer", "gradients"}, kOfRanks,
       "Memory that ranks share out: none; optimizer: each rank keeps the optimizer's state of its "
       "part of the weights, and updates that part (ZeRO-1); gradients: and keeps the gradients of "
       "that part only (ZeRO-2; not on a GPU). Without --compression; --wire bfloat16, or on a GPU "
       "--gradients bfloat16, sends gradients in 16 bits, and weights in 32"},
      {"--label-smoothing", &c.label_smoothing, kShareBelowOne, kNotOnGpus,
       "Share of each target that is spread over all classes"},
      {"--weight-decay", &o.weight_decay, kNotNegative,
       "Decay of matrices and kernels per step, times the learning rate"},
      {"--decay-rules", &c.decay_rules, TextForm{"RULE,RULE", parsed_decay_rules}, kNotOnGpus,
       "Other decays by name: PATTERN=NUMBER,PATTERN=NUMBER; the first that fits counts"},
      {"--momentum", &o.momentum, kShareBelowOne, "sgd, lars: momentum"},
      {"--nesterov", &o.nesterov, kAny, kNotOnGpus, "on: sgd with Nesterov's momentum"},
      {"--beta1", &o.beta1, kShareBelowOne, "adamw, lamb: decay of the first moment"},
      {"--beta2", &o.beta2, kShareBelowOne, "adamw, lamb: decay of the second moment"},
      {"--epsilon", &o.epsilon, kPositive, "adamw, lamb: added to the root of the second moment"},
      {"--weight-average", &c.weight_average, kShareBelowOne, kNotOnGpus,
       "Decay of a running mean of the weights, which is evaluated and kept in place of the last "
       "weights; 0: none"},
      {"--target", &c.target, kAny, kOfRanks,
       "Ends training when the metric on held-out data is as good: 0.97 for an accuracy of 97 %"},
      {"--precision", &c.precision, TextForm{"DTYPE", parsed_precision},
       "Dtype of the operands of products: float32, bfloat16, or float16, which the processor "
       "emulates; weights, sums, norms and losses stay float32"},
      {"--gradients", &c.gradients, TextForm{"auto|DTYPE", parsed_gradients},
       "Dtype in which gradients of dense layers and the like are kept and sent, and read by the "
       "optimizer: float32, bfloat16, or auto: bfloat16 with --precision bfloat16 on the "
       "processor, unless --compression or --wire names something else"},
      {"--loss-scale", &c.loss_scale, TextForm{"NAME|NUMBER"},
       "Factor on the loss against underflow: off, dynamic, a number greater than 0, or auto "
       "(dynamic for --precision float16); all ranks skip a step that overflows"},
      {"--cuda-graph", &c.cuda_graph, kAny, kOfRank,
       "on: record the kernels of a step once and replay them (with --device cuda)"},
      {"--attention", &c.attention, Choices{"auto", "fused", "products"}, kNewer,
       "gpt with --device cuda: fused: by cuDNN, without scores in memory; products: by matrix "
       "products; auto: fused with 16-bit --precision where cuDNN can"},
  };
}

inline std::vector<ConfigOption> exchange_options(Config& c) {
  constexpr unsigned kTraits = kNewer | kNotOnGpus;
  return {
      {"--exchange", &c.exchange, Choices{"dense", "local", "diloco", "async"}, kTraits,
       "What ranks exchange: dense: the gradients of every step; local: their weights, every so "
       "many steps, which become their mean; diloco: the same, and the mean of their movements is "
       "a gradient for Nesterov's momentum; async: gradients, each of which is applied as it "
       "comes"},
      {"--staleness", &c.staleness, kAny, kTraits,
       "async: steps by which a rank may be ahead of the slowest, any unless given; 0 is dense"},
      {"--every", &c.every, kAtLeastOne, kTraits,
       "Steps between two exchanges of weights; unless given 8 for local, 100 for diloco. local "
       "with 1 is dense"},
      {"--local-after", &c.local_after, kAny, kTraits,
       "Steps at the beginning in which all ranks average gradients, before local steps begin"},
      {"--local-unit", &c.local_unit, Choices{"rank", "node"}, kTraits,
       "What takes local steps: each rank, or each node, whose ranks average every gradient"},
      {"--outer-lr", &c.outer_lr, kPositive, kTraits, "diloco: learning rate of the mean movement"},
      {"--outer-momentum", &c.outer_momentum, kShareBelowOne, kTraits, "diloco: its momentum"},
      {"--fragments", &c.fragments, kAtLeastOne, kTraits,
       "Parts of the weights that are exchanged in turn, each once in --every steps"},
      {"--overlap", &c.overlap, kAny, kTraits,
       "Steps during which an exchange of weights is under way while training goes on; 0: training "
       "waits"},
  };
}

inline std::vector<ConfigOption> run_options(Config& c) {
  return {
      {"--run", &c.run, kAny, kOfRanks,
       "Folder of this run, shared by all nodes, for its checkpoints, options and numbers; SIGTERM "
       "and SIGUSR1 then save a checkpoint and end the job with status 0"},
      {"--checkpoint-every", &c.checkpoint_every, kAny, kOfRanks,
       "Steps between checkpoints; 0: only at the end, and when a signal asks to stop"},
      {"--stop-after", &c.stop_after, kAtLeastOne, kOfRanks | kOfCall,
       "Step after which the job saves a checkpoint and ends, to be resumed; needs --run"},
      {"--keep", &c.keep, kAtLeastOne, kOfRanks,
       "Newest checkpoints that stay, beside the one with the lowest held-out loss"},
      {"--resume", &c.resume, TextForm{"auto|no|PATH"}, kOfRanks | kOfCall,
       "auto: go on from the newest complete checkpoint of --run, if there is one; no: begin; or "
       "the path of a checkpoint to go on from"},
      {"--weights", &c.weights, kAny, kOfRanks | kNotOnGpus,
       "Begin with these weights, a safetensors file or the folder of a checkpoint; gpt also takes "
       "files with GPT-2's names"},
      {"--weights-part", &c.weights_part, Choices{"all", "shared"}, kOfRanks,
       "all: the model and --weights have the same names; shared: what both have begins with "
       "--weights, the rest of the model anew, and the program lists it"},
      {"--export", &c.export_file, kAny, kOfRank | kOfCall,
       "Write the weights to this file at the end, as safetensors"},
      {"--log-every", &c.log_every, kAtLeastOne, kOfRanks, "Steps between lines of progress"},
      {"--eval-every", &c.eval_every, kAny, kOfRanks,
       "Steps between evaluations on held-out data; 0: after each epoch; async: at the end"},
      {"--eval-samples", &c.eval_samples, kAny, kOfRanks,
       "Held-out samples of an evaluation, evenly spread; 0: all; unless given so many that "
       "evaluations take about a tenth of the time of training"},
      {"--progress", &c.progress, Choices{"auto", "terminal", "lines"}, kOfRank | kOfCall,
       "terminal: one line, updated in place; lines; or auto"},
      {"--json", &c.json, kAny, kOfRank | kOfCall, "Write the summary to this file"},
      {"--sample", &c.sample_bytes, kAny, kOfRank,
       "gpt: bytes of generated text at the end; 0: none"},
      {"--temperature", &c.temperature, kNotNegative, kOfRank,
       "gpt: randomness of generated text; 0: always the most likely token"},
      {"--prompt", &c.prompt, kAny, kOfRank,
       "gpt: text that the generated text continues; a line break unless given"},
  };
}

/// All options of the trainer. They refer to the fields of `c`, so `c` must outlive them.
std::vector<ConfigOption> options_of(Config& c);

/// The default configuration of `model`, or of its shape `shape` unless that is empty. Errors:
/// UsageError for an unknown model or shape, naming the choices; KoloError(kConfig) if a shape is
/// given and the model has none.
Config default_config(const Catalog& catalog, const std::string& model,
                      const std::string& shape = {});

/// Checks all options, each alone and in combination. Errors: KoloError(kConfig) naming the option
/// that is invalid; UsageError naming the choices for an unknown name.
void validate(const Config& config, const Catalog& catalog);

/// The limit of the gradient norm and the options of the loss scale. Errors: those of
/// `parse_precision` and `parse_loss_scale`.
UpdateGate::Options update_options(const Config& config);

/// The highest learning rate of a job of `ranks` ranks: `config.lr`, multiplied by the number of
/// ranks for `lr_scaling` "linear" and by its square root for "sqrt".
float peak_lr(const Config& config, int ranks);

/// Parses the rates of all ranks, such as "2,1,1". Returns no rates for "off" and "auto". Errors:
/// KoloError(kConfig).
std::vector<double> parse_rates(const std::string& text);

/// The number of steps between exchanges of weights: `config.every` if it is set, otherwise 100 for
/// `exchange` "diloco" and 8 for "local".
std::size_t exchange_every(const Config& config);

/// Returns true if ranks take local steps. "local" with an exchange after every step counts as
/// "dense".
inline bool has_local_steps(const Config& config) {
  return config.exchange == "diloco" || (config.exchange == "local" && exchange_every(config) > 1);
}

/// Returns true if each rank takes steps at its own pace. "async" without staleness counts as
/// "dense".
inline bool is_asynchronous(const Config& config) {
  return config.exchange == "async" && config.staleness != std::size_t{0};
}

/// Parses "drop" and "join"; every other text counts as "pad". `validate` rejects other texts.
Uneven parse_uneven(const std::string& text);

/// The number of steps of a job whose `ranks` ranks share `samples` training samples. Errors:
/// KoloError(kConfig) if `uneven` is "drop" and the samples do not fill one step.
std::size_t total_steps(const Config& config, std::size_t samples, int ranks);

/// How many of `all` held-out samples an evaluation reads: `config.eval_samples` if it is set, or
/// all if it is 0. If it is empty, the number is such that evaluations, `every` steps apart, take
/// about a tenth of the time of training.
std::size_t evaluation_samples(const Config& config, std::size_t all, std::size_t every, int ranks);

/// The settings that a resumed run must not change, because they determine the course of training.
std::vector<Setting> course_settings(const Config& config);

/// The settings that must be equal on all ranks, with the hash of the vocabularies.
std::vector<Setting> common_settings(const Config& config);

}  // namespace kolo::trainer
