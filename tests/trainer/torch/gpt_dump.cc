// Runs a training pass of a GPT on random tokens, and writes all that goes in and comes out, for a
// comparison with PyTorch.
//
//     gpt_dump gpt|rotary FOLDER          random weights; rotary has an output table of its own
//     gpt_dump WEIGHTS FOLDER             those of a file with GPT-2's names
//
// FOLDER gets one file of raw elements for each of tokens, next (int32 [sequences, context]),
// logits, value/NAME and gradient/NAME of each parameter.

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "tests/trainer/torch/dump.h"
#include "trainer/checkpoint/import.h"
#include "trainer/compute/device.h"
#include "trainer/loss/softmax_cross_entropy.h"
#include "trainer/models/gpt.h"
#include "trainer/models/gpt2_layout.h"
#include "trainer/random.h"

namespace {

using namespace kolo::trainer;

constexpr std::size_t kSequences = 2;
constexpr std::size_t kContext = 70;  // more than a block of rows of attention
constexpr std::size_t kTokens = 53;

std::vector<std::int32_t> random_tokens(std::uint64_t seed) {
  Random random(seed);
  std::vector<std::int32_t> tokens(kSequences * kContext);
  for (auto& token : tokens) token = static_cast<std::int32_t>(random.below(kTokens));
  return tokens;
}

void run(const std::string& weights, const std::filesystem::path& folder) {
  const bool is_rotary = weights == "rotary";
  Device device;
  Gpt model(device, {.sequences = kSequences,
                     .context = kContext,
                     .tokens = kTokens,
                     .layers = 3,
                     .width = 48,
                     .heads = 4,
                     .positions = is_rotary ? Gpt::Positions::kRotary : Gpt::Positions::kLearned,
                     .is_tied = !is_rotary,
                     .seed = 3});
  ParameterSet& parameters = model.parameters();
  parameters.own_gradients();
  if (weights != "gpt" && !is_rotary) {
    const std::vector<WeightLayout> layouts = {gpt2_layout()};
    import_weights(weights, parameters, layouts);
  }
  const std::vector<std::int32_t> tokens = random_tokens(1);
  const std::vector<std::int32_t> next = random_tokens(2);
  const TensorView inputs[] = {tokens};
  const TensorView targets[] = {next};
  dump_values(folder, parameters);
  dump<std::int32_t>(folder / "tokens", tokens);
  dump<std::int32_t>(folder / "next", next);
  SoftmaxCrossEntropy loss({.rows = tokens.size(), .classes = kTokens});
  const std::span<const float> logits = model.forward(inputs, {});
  dump<float>(folder / "logits", logits);
  loss.evaluate(logits, targets, 1.0f / static_cast<float>(tokens.size()));
  model.backward(loss.gradient());
  dump_gradients(folder, parameters);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() != 2) {
    std::cerr << "usage: gpt_dump gpt|rotary|WEIGHTS FOLDER\n";
    return 64;
  }
  run(arguments[0], arguments[1]);
  return 0;
}
