#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/catalog.h"
#include "trainer/config.h"
#include "trainer/data/augmentation.h"
#include "trainer/data/files.h"
#include "trainer/errors.h"
#include "trainer/loss/loss.h"
#include "trainer/tasks/task.h"
#include "trainer/text/masked_texts.h"
#include "trainer/text/vocabulary.h"

namespace kolo::trainer {
namespace {

bool is_token_window(const Field& field) {
  return field.dtype == DType::kInt32 && field.shape.size() == 1;
}

/// The average number of bytes per target of `data`. An end-of-text token counts as no bytes.
double bytes_per_target(const Dataset& data, const Tokenizer& tokenizer) {
  std::vector<double> bytes;
  for (std::size_t token = 0; token < tokenizer.size(); ++token) {
    const auto id = static_cast<std::int32_t>(token);
    const bool is_end = id == tokenizer.end_of_text();
    bytes.push_back(is_end ? 0.0 : static_cast<double>(tokenizer.bytes_of(id).size()));
  }
  if (std::ranges::all_of(bytes, [](double count) { return count == 1.0; })) return 1.0;
  const std::size_t context = data.format().targets.at(0).elements();
  std::vector<std::int32_t> tokens(context);
  std::vector<std::int32_t> next(context);
  const TensorSlot inputs[] = {tokens};
  const TensorSlot targets[] = {next};
  double sum = 0.0;
  for (std::size_t i = 0; i < data.size(); ++i) {
    data.copy(i, 0, inputs, targets);
    for (const std::int32_t token : next) sum += bytes[static_cast<std::size_t>(token)];
  }
  return sum / static_cast<double>(data.size() * context);
}

const DatasetEntry& required_format(const Config& config, const Catalog& catalog) {
  if (const DatasetEntry* format = find_format(config, catalog)) return *format;
  if (!is_there(config.data)) throw_data_error(config.data, "no such file or directory");
  std::string known;
  for (const DatasetEntry& entry : catalog.datasets.entries()) {
    if (!catalog.tasks.at(config.task).reads_data_of(entry.task)) continue;
    known += (known.empty() ? "" : "; or ") + entry.help + " (--format " + entry.name + ")";
  }
  throw_data_error(config.data,
                   "holds no data for --task " + config.task + ", which takes " + known);
}

}  // namespace

const DatasetEntry* find_format(const Config& config, const Catalog& catalog) {
  if (config.format != "auto") return &catalog.datasets.at(config.format);
  if (!is_there(config.data)) return nullptr;
  const TaskEntry& task = catalog.tasks.at(config.task);
  for (const DatasetEntry& entry : catalog.datasets.entries()) {
    if (task.reads_data_of(entry.task) && entry.accepts(config.data)) return &entry;
  }
  return nullptr;
}

void throw_wrong_samples(const Config& config, const std::string& wanted) {
  throw_data_error(config.data, "--task " + config.task + " needs samples with " + wanted);
}

Task classification_task(const Config& config, DataSplit data, std::size_t rows_per_sample,
                         std::string unit) {
  const std::size_t classes = data.train->format().targets.at(0).values;
  return {.data = std::move(data),
          .outputs = classes,
          .rows_per_sample = rows_per_sample,
          .unit = std::move(unit),
          .metric = {.name = "accuracy"},
          .make_loss = [=, smoothing = config.label_smoothing](std::size_t batch,
                                                               const TensorRanks& ranks) {
            return std::make_unique<SoftmaxCrossEntropy>(
                SoftmaxCrossEntropy::Options{.rows = batch * rows_per_sample,
                                             .classes = classes,
                                             .label_smoothing = smoothing,
                                             .ranks = ranks});
          }};
}

TaskEntry image_classification() {
  return {.name = "image-classification",
          .help = "one class for each image",
          .make =
              [](const Config& config, DataSplit data) {
                const Field& image = data.train->format().inputs.at(0);
                if (image.dtype != DType::kUInt8 || image.shape.size() != 3) {
                  throw_wrong_samples(config, "an image of height, width and channels");
                }
                return classification_task(config, std::move(data), 1, "samples");
              },
          .reads = {"--label-smoothing"}};
}

TaskEntry text_classification() {
  return {.name = "text-classification",
          .help = "one class for each text",
          .make =
              [](const Config& config, DataSplit data) {
                const SampleFormat& format = data.train->format();
                if (!is_token_window(format.inputs.at(0)) || format.targets.empty() ||
                    !format.targets[0].shape.empty()) {
                  throw_wrong_samples(config, "a text of words and its class");
                }
                return classification_task(config, std::move(data), 1, "samples");
              },
          .reads = {"--label-smoothing"}};
}

TaskEntry language_model() {
  return {.name = "language-model",
          .help = "the next token after each token of a text",
          .make =
              [](const Config& config, DataSplit data) {
                const SampleFormat& format = data.train->format();
                const Field& tokens = format.inputs.at(0);
                if (!is_token_window(tokens) || format.targets.empty() ||
                    format.targets[0].shape != tokens.shape) {
                  throw_wrong_samples(config, "a window of tokens");
                }
                Task task =
                    classification_task(config, std::move(data), tokens.elements(), "tokens");
                if (task.data.tokenizer != nullptr) {
                  task.bytes_per_row = bytes_per_target(*task.data.held_out, *task.data.tokenizer);
                }
                return task;
              },
          .reads = {"--label-smoothing"}};
}

TaskEntry rating() {
  return {.name = "rating",
          .help = "the number that a user gives to an item",
          .make = [](const Config& config, DataSplit data) -> Task {
            const std::vector<Field>& targets = data.train->format().targets;
            if (targets.empty()) throw_wrong_samples(config, "a number to predict");
            const Field& target = targets[0];
            if (target.dtype != DType::kFloat32 || target.elements() != 1) {
              throw_wrong_samples(config, "a number to predict");
            }
            return {.data = std::move(data),
                    .outputs = 1,
                    .rows_per_sample = 1,
                    .unit = "samples",
                    .metric = {.name = "rmse",
                               .is_higher_better = false,
                               .is_share = false,
                               .value = [](double mean_square) { return std::sqrt(mean_square); }},
                    .make_loss = [](std::size_t batch, const TensorRanks&) {
                      return std::make_unique<SquaredError>(batch);
                    }};
          }};
}

// Steps and ranks hide different numbers of words, and a rank knows only its own number. So each
// word has a fixed weight, from the mean over the training data. Then N ranks take the same steps
// as one rank with all their samples, no message is needed, and the reported loss is a plain mean.
TaskEntry masked_tokens() {
  return {.name = "masked-tokens",
          .help = "the words or other tokens that are hidden in a text",
          .make =
              [](const Config& config, DataSplit data) {
                if (!config.text_marks) {
                  throw_config_error("--task masked-tokens: needs --text-marks on");
                }
                if (data.vocabulary == nullptr) {
                  throw_wrong_samples(config, "texts of words or byte pairs");
                }
                const TextVocabulary& vocabulary = *data.vocabulary;
                if (vocabulary.tokens().size() == 0) {
                  throw_data_error(config.data, "there are no words that can be told apart");
                }
                auto train =
                    std::make_unique<MaskedTexts>(std::move(data.train), vocabulary, config.seed);
                const double mean_chosen = train->mean_chosen();
                const std::size_t rows = train->format().targets[0].elements();
                data.train = std::move(train);
                data.held_out = std::make_unique<MaskedTexts>(std::move(data.held_out), vocabulary,
                                                              config.seed);
                Task task = classification_task(config, std::move(data), rows, "hidden words");
                task.mean_targets = mean_chosen;
                return task;
              },
          .also_reads_data_of = {"text-classification", "language-model"},
          .reads = {"--label-smoothing"}};
}

Task make_task(const Config& config, const Catalog& catalog) {
  const TaskEntry& task = catalog.tasks.at(config.task);
  DataSplit data = required_format(config, catalog).load(config);
  for (const auto& [part, name] :
       {std::pair(data.train.get(), "training"), std::pair(data.held_out.get(), "held-out")}) {
    if (part->size() > 0) continue;
    throw_data_error(config.data, "there are no " + std::string(name) + " samples");
  }
  if (!is_compatible(data.train->format(), data.held_out->format())) {
    throw_data_error(config.data, "training and held-out samples differ in shape or range");
  }
  if (const Augmentation augmentation = parse_augmentation(config.augment);
      !augmentation.is_empty()) {
    if (!takes_augmentation(data.train->format())) {
      throw_config_error("--augment " + config.augment + ": changes images, and " +
                         config.data.string() + " has none; leave it out");
    }
    data.train = augmented(std::move(data.train), augmentation, config.seed);
  }
  return task.make(config, std::move(data));
}

ModelSetting model_setting(const Config& config, const Task& task) {
  return {.config = config,
          .format = task.format(),
          .outputs = task.outputs,
          .batch = config.batch,
          .tokenizer = task.data.tokenizer.get()};
}

}  // namespace kolo::trainer
