#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/options/options.h"
#include "trainer/checkpoint/job_identity.h"
#include "trainer/data/dataset.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/optimizer/update_gate.h"
#include "trainer/text/tokenizer.h"

namespace kolo::trainer {

struct Catalog;

/// Everything that defines a training job. The same on all ranks.
struct Config {
  std::string model = "gpt";    ///< A name of `Catalog::models`.
  std::string task;             ///< A name of `Catalog::tasks`; that of the model unless set.
  std::string format = "auto";  ///< A name of `Catalog::datasets`, or "auto": as the files look.
  std::filesystem::path data;   ///< File or directory.
  std::filesystem::path tokenizer;  ///< Vocabularies to read texts with; see `vocabularies_at`.
  TextFiles text_files;             ///< Those of `weights` or `tokenizer`; empty: the data decides.

  std::size_t epochs = 1;
  std::optional<std::size_t> steps;  ///< Takes precedence over `epochs`.
  std::size_t batch = 16;            ///< Samples per rank and pass.
  std::size_t accumulation = 1;      ///< Passes per step, whose gradients add up.
  std::string uneven = "pad";        ///< As `parse_uneven`.
  std::uint64_t seed = 1;
  int threads = 1;                            ///< Threads of the mathematics library per rank.
  std::optional<std::size_t> loader_threads;  ///< As `DataLoader`; empty: where cores are free.

  std::string optimizer = "adamw";
  OptimizerOptions optimizer_options;
  float lr = 1e-3f;                    ///< Highest learning rate.
  std::string lr_schedule = "cosine";  ///< A name of `lr_schedule_names`.
  float final_lr_share = 0.1f;         ///< Share of `lr` at the last step.
  std::size_t warmup_steps = 0;
  std::string lr_scaling = "none";  ///< "none", "linear" or "sqrt"; see `peak_lr`.
  double clip_norm = 0.0;           ///< 0: gradients are not clipped.
  std::string decay_rules;          ///< As `parse_decay_rules`.
  std::string shard = "none";       ///< "none", "optimizer" or "gradients": what ranks share out.
  float weight_average = 0.0f;      ///< Decay of the mean of weights that is evaluated; 0: none.
  std::optional<double> target;     ///< Value of the task's metric that ends training.
  std::string augment;              ///< As `parse_augmentation`.
  float label_smoothing = 0.0f;     ///< Tasks with classes; see SoftmaxCrossEntropy.

  std::string precision = "float32";  ///< As `parse_precision`.
  std::string gradients = "auto";     ///< As `gradient_dtype`.
  std::string loss_scale = "auto";    ///< As `parse_loss_scale`.
  bool cuda_graph = false;            ///< Record the kernels of a step once and replay them.

  std::string shape;                      ///< Of `ModelEntry::shapes`; empty: none.
  std::size_t layers = 4;                 ///< gpt, bert.
  std::size_t width = 128;                ///< gpt, texts, ratings: elements of a vector.
  std::size_t heads = 4;                  ///< gpt, bert.
  std::size_t context = 64;               ///< gpt, in tokens.
  std::string positions = "learned";      ///< gpt: "learned" or "rotary"; see Gpt::Positions.
  bool tied = true;                       ///< gpt: the output layer has the embedding's table.
  std::size_t max_length = 128;           ///< Texts: words of a sample at most.
  std::optional<std::size_t> vocabulary;  ///< Texts: entries at most; empty: all words.
  std::size_t min_count = 2;              ///< Texts: occurrences that give a word an entry.
  bool text_marks = false;                ///< Texts: begin with [CLS]; there is [MASK], too.
  std::string text_column = "text";       ///< Tables of texts.
  std::string label_column = "label";
  std::size_t hidden = 128;      ///< Dense layers of image models.
  float dropout = 0.0f;          ///< gpt, classifiers of texts: share; see Dropout.
  bool row_gradients = true;     ///< Gradients of embedding tables are rows.
  bool sync_batch_norm = false;  ///< Statistics are those of all ranks' samples.

  std::size_t log_every = 50;               ///< Steps.
  std::size_t eval_every = 0;               ///< Steps; 0: at the end of each epoch.
  std::optional<std::size_t> eval_samples;  ///< As `evaluation_samples`; 0: all.
  std::string progress = "auto";            ///< "auto", "terminal" or "lines".
  std::filesystem::path json;               ///< Empty: no file.

  std::filesystem::path run;              ///< Folder of checkpoints; empty: none.
  std::size_t checkpoint_every = 0;       ///< Steps; 0: at the end, and when asked to stop.
  std::optional<std::size_t> stop_after;  ///< Step after which the job ends, to be resumed.
  std::size_t keep = 3;                   ///< Newest checkpoints that stay.
  std::string resume = "no";              ///< "auto", "no" or the path of a checkpoint.
  std::filesystem::path weights;      ///< Safetensors file to begin with; empty: random weights.
  std::string weights_part = "all";   ///< "all" or "shared"; see `import_weights`.
  std::filesystem::path export_file;  ///< Weights at the end; empty: no file.

  std::size_t sample_bytes = 400;  ///< gpt: generated text at the end.
  double temperature = 0.8;
  std::string prompt = "\n";

  Options runtime;
};

/// The configuration that trains `model` well without further options, in one of its shapes if that
/// is not empty. Errors: UsageError for an unknown model or shape, naming the choices;
/// KoloError(kConfig) for a shape of a model that has none.
Config default_config(const Catalog& catalog, const std::string& model,
                      const std::string& shape = {});

/// Errors: KoloError(kConfig) naming the option whose value is invalid, alone or with others;
///         UsageError naming the choices where there is no such one.
void validate(const Config& config, const Catalog& catalog);

/// Clipping and loss scale. Errors: KoloError(kConfig) as `parse_precision`, `parse_loss_scale`.
UpdateGate::Options update_options(const Config& config);

/// The highest learning rate of a job of `ranks` ranks: `lr`, or times the ranks, or times their
/// root.
float peak_lr(const Config& config, int ranks);

/// "pad", "drop" or "join". Errors: UsageError.
Uneven parse_uneven(const std::string& text);

/// Steps of a job whose `ranks` ranks share `samples` training samples. Errors: KoloError(kConfig)
/// if `uneven` leaves none.
std::size_t total_steps(const Config& config, std::size_t samples, int ranks);

/// Held-out samples that an evaluation reads, of `all`: `eval_samples`, or unless that is given so
/// many that evaluations take about a tenth of the time of training, when there are `every` steps
/// between them.
std::size_t evaluation_samples(const Config& config, std::size_t all, std::size_t every, int ranks);

/// Everything in `config` that determines the course of training, but what depends on the number of
/// ranks.
std::vector<Setting> course_settings(const Config& config);

/// Everything in `config` that must be equal on all ranks.
std::vector<Setting> common_settings(const Config& config);

}  // namespace kolo::trainer
