// Tasks that give each row one class.

#include <utility>

#include "trainer/config.h"
#include "trainer/data/data_error.h"
#include "trainer/loss/softmax_cross_entropy.h"
#include "trainer/tasks/task.h"

namespace kolo::trainer {

namespace {

bool is_token_window(const Field& field) {
  return field.dtype == DType::kInt32 && field.shape.size() == 1;
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
          .make = [](const Config& config, DataSplit data) {
            const Field& image = data.train->format().inputs.at(0);
            if (image.dtype != DType::kUInt8 || image.shape.size() != 3) {
              throw_wrong_samples(config, "an image of height, width and channels");
            }
            return classification_task(config, std::move(data), 1, "samples");
          }};
}

TaskEntry text_classification() {
  return {.name = "text-classification",
          .help = "one class for each text",
          .make = [](const Config& config, DataSplit data) {
            const SampleFormat& format = data.train->format();
            if (!is_token_window(format.inputs.at(0)) || format.targets.empty() ||
                !format.targets[0].shape.empty()) {
              throw_wrong_samples(config, "a text of words and its class");
            }
            return classification_task(config, std::move(data), 1, "samples");
          }};
}

TaskEntry language_model() {
  return {.name = "language-model",
          .help = "the next token after each token of a text",
          .make = [](const Config& config, DataSplit data) {
            const SampleFormat& format = data.train->format();
            const Field& tokens = format.inputs.at(0);
            if (!is_token_window(tokens) || format.targets.empty() ||
                format.targets[0].shape != tokens.shape) {
              throw_wrong_samples(config, "a window of tokens");
            }
            return classification_task(config, std::move(data), tokens.elements(), "tokens");
          }};
}

}  // namespace kolo::trainer
