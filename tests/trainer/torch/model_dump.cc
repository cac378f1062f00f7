// Runs a training pass of a model on random samples, and writes inputs and results for a comparison
// with PyTorch.
//
//     model_dump gpt|rotary FOLDER [WEIGHTS]    random weights, or weights of a file with GPT-2's
//                                               names; rotary has a separate output table
//     model_dump gpt2 FOLDER NAME...            --shape gpt2, for one short sequence; the gradients
//                                               of these parameters only
//     model_dump resnet20|resnet18 FOLDER SIDE
//     model_dump masked-tokens|text-classification FOLDER               the model bert
//     model_dump embedding-bag|lstm|matrix-factorization FOLDER
//
// FOLDER gets one file of raw elements for each of first, second … (the inputs), targets, output,
// loss (a sum, in float64), and value/NAME and gradient/NAME of each parameter. For models with
// buffers, it also gets buffer/NAME and evaluated, the output outside of training.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "trainer/checkpoint/stored_weights.h"
#include "trainer/compute/device.h"
#include "trainer/config.h"
#include "trainer/loss/loss.h"
#include "trainer/models/bert.h"
#include "trainer/models/gpt.h"
#include "trainer/models/image_models.h"
#include "trainer/models/matrix_factorization.h"
#include "trainer/models/text_models.h"
#include "trainer/random.h"

namespace kolo::trainer {
namespace {

using Arguments = std::span<const std::string>;
using Integers = std::vector<std::int32_t>;
namespace fs = std::filesystem;

void dump(const fs::path& file, std::span<const std::byte> bytes) {
  fs::create_directories(file.parent_path());
  std::ofstream out(file, std::ios::binary);
  out.exceptions(std::ios::badbit | std::ios::failbit);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
}

void dump(const fs::path& file, std::span<const float> values) {
  dump(file, std::as_bytes(values));
}

template <typename T = std::int32_t>
std::vector<T> integers(Random& random, std::size_t count, std::size_t from, std::size_t below) {
  std::vector<T> drawn(count);
  for (T& one : drawn) one = static_cast<T>(from + random.below(below - from));
  return drawn;
}

/// Runs the pass. `names`: the parameters whose gradients are written; empty: all.
void run(const fs::path& folder, Model& model, Loss& loss, const std::vector<TensorView>& inputs,
         const TensorView& wanted, Arguments names = {}) {
  ParameterSet& parameters = model.parameters();
  parameters.own_gradients();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    dump(folder / "value" / parameters[i].name(), std::as_const(parameters[i]).value());
  }
  const char* const input_names[] = {"first", "second", "third"};
  for (std::size_t i = 0; i < inputs.size(); ++i) dump(folder / input_names[i], inputs[i].bytes());
  dump(folder / "targets", wanted.bytes());
  const std::span<const float> output = model.forward(inputs, {});
  dump(folder / "output", output);
  const double sum[] = {loss.evaluate(output, {&wanted, 1}, 1.0f).loss};
  dump(folder / "loss", std::as_bytes(std::span(sum)));
  model.backward(loss.gradient());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters[i].name();
    if (!names.empty() && std::ranges::find(names, name) == names.end()) continue;
    dump(folder / "gradient" / name, parameters[i].gradient());
  }
  if (parameters.buffers().empty()) return;
  for (const Buffer& buffer : parameters.buffers()) {
    dump(folder / "buffer" / buffer.name, buffer.value.span());
  }
  dump(folder / "evaluated", model.forward(inputs, {.is_training = false}));
}

void run_gpt(const fs::path& folder, const Gpt::Options& options, const std::string& weights,
             Arguments names) {
  Device device;
  Gpt model(device, options);
  if (!weights.empty()) {
    const std::vector<WeightLayout> layouts = {gpt2_layout()};
    import_weights(weights, model.parameters(), layouts);
  }
  const std::size_t rows = options.sequences * options.context;
  Random random(7);
  const Integers text = integers(random, rows + 1, 0, options.tokens);
  SoftmaxCrossEntropy loss({.rows = rows, .classes = options.tokens});
  run(folder, model, loss, {std::span(text).first(rows)}, std::span(text).subspan(1), names);
}

Gpt::Options small_gpt(bool is_rotary) {
  return {.sequences = 2,
          .context = 70,  // more than one block of attention rows
          .tokens = 53,
          .model = {.layers = 3,
                    .width = 48,
                    .heads = 4,
                    .positions = is_rotary ? "rotary" : "learned",
                    .tied = !is_rotary},
          .seed = 3};
}

/// Returns the shape of --shape gpt2, with a short sequence.
Gpt::Options gpt2() {
  const ModelEntry entry = Gpt::entry();
  Config config;
  std::ranges::find(entry.shapes, "gpt2", &ModelShape::name)->set(config);
  return {.sequences = 1, .context = 16, .tokens = 50257, .model = config, .seed = 3};
}

void run_resnet(const fs::path& folder, const Resnet::Stages& stages, std::size_t side) {
  constexpr std::size_t kImages = 4, kClasses = 10;
  Device device;
  Resnet model(device,
               {.images = kImages,
                .height = side,
                .width = side,
                .channels = 3,
                .classes = kClasses,
                .hidden = 1,
                .scaling = PixelScaling(127.5, 73.9),
                .seed = 3},
               stages);
  Random random(7);
  const auto pixels = integers<std::uint8_t>(random, kImages * side * side * 3, 0, 256);
  SoftmaxCrossEntropy loss({.rows = kImages, .classes = kClasses});
  run(folder, model, loss, {pixels}, integers(random, kImages, 0, kClasses));
}

void run_bert(const fs::path& folder, bool predicts_tokens) {
  constexpr std::size_t kTexts = 5, kTokens = 30, kChosen = 3;
  constexpr std::size_t kLength = 70;  // more than one block of attention rows
  const std::size_t classes = predicts_tokens ? kTokens : 4;
  const std::size_t rows = predicts_tokens ? kTexts * kChosen : kTexts;
  Device device;
  Bert model(device, {.texts = kTexts,
                      .length = kLength,
                      .tokens = kTokens,
                      .chosen = predicts_tokens ? kChosen : 0,
                      .classes = classes,
                      .model = {.layers = 2, .width = 16, .heads = 4},
                      .seed = 3});
  ParameterSet& parameters = model.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {  // makes all biases and gains differ
    Random added(9, i);
    for (float& value : parameters[i].value()) value += added.uniform() - 0.5f;
  }
  Random random(7);
  const Integers tokens = integers(random, kTexts * kLength, 0, kTokens);
  Integers length = integers(random, kTexts, 2, kLength);
  length[0] = kLength;
  length[1] = 2;
  const Integers chosen = integers(random, kTexts * kChosen, 0, 2);
  Integers targets = integers(random, rows, 0, classes);
  if (predicts_tokens) targets[1] = targets[7] = kNoTarget;
  std::vector<TensorView> inputs = {tokens, length};
  if (predicts_tokens) inputs.emplace_back(chosen);
  SoftmaxCrossEntropy loss({.rows = rows, .classes = classes});
  run(folder, model, loss, inputs, targets);
}

constexpr std::size_t kSamples = 6, kEntries = 20, kWidth = 16;

template <typename TextModel>
void run_texts(const fs::path& folder) {
  constexpr std::size_t kLength = 9, kClasses = 5;
  Device device;
  TextModel model(device, {.texts = kSamples,
                           .length = kLength,
                           .words = kEntries,
                           .classes = kClasses,
                           .model = {.width = kWidth},
                           .seed = 3});
  SoftmaxCrossEntropy loss({.rows = kSamples, .classes = kClasses});
  Random random(7);
  const Integers words = integers(random, kSamples * kLength, 0, kEntries);
  const Integers lengths = integers(random, kSamples, 1, kLength + 1);
  run(folder, model, loss, {words, lengths}, integers(random, kSamples, 0, kClasses));
}

void run_matrix_factorization(const fs::path& folder) {
  MatrixFactorization model({.ratings = kSamples,
                             .users = kEntries,
                             .items = kEntries,
                             .width = kWidth,
                             .mean = 3.5f,
                             .seed = 3});
  SquaredError loss(kSamples);
  Random random(7);
  const Integers users = integers(random, kSamples, 1, kEntries);
  const Integers items = integers(random, kSamples, 1, kEntries / 2);
  run(folder, model, loss, {users, items}, std::vector<float>{1.0f, 2.5f, 5.0f, 4.0f, 3.0f, 0.5f});
}

int run_model(const std::string& model, const fs::path& folder, Arguments more) {
  if (model == "gpt" || model == "rotary") {
    run_gpt(folder, small_gpt(model == "rotary"), more.empty() ? "" : more[0], {});
  } else if (model == "gpt2") {
    run_gpt(folder, gpt2(), "", more);
  } else if (model == "resnet20") {
    run_resnet(folder, Resnet::stages20(), std::stoul(more[0]));
  } else if (model == "resnet18") {
    run_resnet(folder, Resnet::stages18(), std::stoul(more[0]));
  } else if (model == "masked-tokens" || model == "text-classification") {
    run_bert(folder, model == "masked-tokens");
  } else if (model == "embedding-bag") {
    run_texts<EmbeddingBagClassifier>(folder);
  } else if (model == "lstm") {
    run_texts<LstmClassifier>(folder);
  } else if (model == "matrix-factorization") {
    run_matrix_factorization(folder);
  } else {
    std::cerr << "there is no model " << model << '\n';
    return 64;
  }
  return 0;
}

}  // namespace
}  // namespace kolo::trainer

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 2) {
    std::cerr << "usage: model_dump MODEL FOLDER [ARGUMENT...]\n";
    return 64;
  }
  return kolo::trainer::run_model(arguments[0], arguments[1], std::span(arguments).subspan(2));
}
