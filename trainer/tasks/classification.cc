// Tasks that give each row one class.

#include <algorithm>
#include <utility>
#include <vector>

#include "trainer/config.h"
#include "trainer/data/data_error.h"
#include "trainer/loss/softmax_cross_entropy.h"
#include "trainer/tasks/task.h"

namespace kolo::trainer {

namespace {

bool is_token_window(const Field& field) {
  return field.dtype == DType::kInt32 && field.shape.size() == 1;
}

/// The mean number of bytes of the targets of `data`. The end of a text has none.
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

}  // namespace

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
          .make_loss = [=, smoothing = config.label_smoothing](std::size_t batch) {
            return std::make_unique<SoftmaxCrossEntropy>(SoftmaxCrossEntropy::Options{
                .rows = batch * rows_per_sample, .classes = classes, .label_smoothing = smoothing});
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

}  // namespace kolo::trainer
