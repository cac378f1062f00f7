// Runs a training pass of the model bert on random texts, and writes all that goes in and comes
// out, for a comparison with PyTorch.
//
//     bert_dump masked-tokens|text-classification FOLDER
//
// FOLDER gets one file of raw elements for each of tokens, length, chosen and targets (int32),
// output, value/NAME and gradient/NAME of each parameter.

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "tests/trainer/torch/dump.h"
#include "trainer/compute/device.h"
#include "trainer/loss/loss.h"
#include "trainer/models/bert.h"
#include "trainer/random.h"

namespace {

using namespace kolo::trainer;

constexpr std::size_t kTexts = 5;
constexpr std::size_t kLength = 70;  // more than a block of attention has rows
constexpr std::size_t kTokens = 30;
constexpr std::size_t kChosen = 3;
constexpr std::size_t kClasses = 4;

std::vector<std::int32_t> integers(std::size_t count, std::size_t from, std::size_t below) {
  Random random(7, count);
  std::vector<std::int32_t> drawn(count);
  for (auto& one : drawn) one = static_cast<std::int32_t>(from + random.below(below - from));
  return drawn;
}

void run(bool predicts_tokens, const std::filesystem::path& folder) {
  const std::size_t classes = predicts_tokens ? kTokens : kClasses;
  const std::size_t rows = predicts_tokens ? kTexts * kChosen : kTexts;
  Device device;
  Bert model(device, {.texts = kTexts,
                      .length = kLength,
                      .tokens = kTokens,
                      .chosen = predicts_tokens ? kChosen : 0,
                      .classes = classes,
                      .layers = 2,
                      .width = 16,
                      .heads = 4,
                      .dropout = 0.0f,
                      .seed = 3});
  ParameterSet& parameters = model.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {  // biases and gains of their own
    Random random(9, i);
    for (float& value : parameters[i].value()) value += random.uniform() - 0.5f;
  }
  parameters.own_gradients();
  dump_values(folder, parameters);

  const std::vector<std::int32_t> tokens = integers(kTexts * kLength, 0, kTokens);
  std::vector<std::int32_t> length = integers(kTexts, 2, kLength);
  length[0] = kLength;
  length[1] = 2;
  const std::vector<std::int32_t> chosen = integers(kTexts * kChosen, 0, 2);
  std::vector<std::int32_t> targets = integers(rows, 0, classes);
  if (predicts_tokens) targets[1] = targets[7] = kNoTarget;
  dump<std::int32_t>(folder / "tokens", tokens);
  dump<std::int32_t>(folder / "length", length);
  dump<std::int32_t>(folder / "chosen", chosen);
  dump<std::int32_t>(folder / "targets", targets);

  std::vector<TensorView> inputs = {tokens, length};
  if (predicts_tokens) inputs.emplace_back(chosen);
  const std::span<const float> output = model.forward(inputs, {});
  dump<float>(folder / "output", output);
  SoftmaxCrossEntropy loss({.rows = rows, .classes = classes});
  const TensorView wanted[] = {targets};
  loss.evaluate(output, wanted, 1.0f);
  model.backward(loss.gradient());
  dump_gradients(folder, parameters);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() != 2) {
    std::cerr << "usage: bert_dump masked-tokens|text-classification FOLDER\n";
    return 64;
  }
  run(arguments[0] == "masked-tokens", arguments[1]);
  return 0;
}
