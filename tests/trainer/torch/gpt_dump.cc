// Runs a training pass of a GPT on random tokens, and writes all that goes in and comes out, for a
// comparison with PyTorch.
//
//     gpt_dump gpt|rotary FOLDER          random weights; rotary has an output table of its own
//     gpt_dump WEIGHTS FOLDER             those of a file with GPT-2's names
//     gpt_dump SHAPE FOLDER NAME...       random weights of a --shape, for one short sequence; the
//                                         gradients of these parameters only
//
// FOLDER gets one file of raw elements for each of tokens, next (int32 [sequences, context]),
// logits, loss (the mean), value/NAME and gradient/NAME of each parameter.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/trainer/torch/dump.h"
#include "trainer/checkpoint/stored_weights.h"
#include "trainer/compute/device.h"
#include "trainer/config.h"
#include "trainer/loss/loss.h"
#include "trainer/models/gpt.h"
#include "trainer/random.h"

namespace {

using namespace kolo::trainer;

constexpr std::size_t kGpt2Tokens = 50257;
constexpr std::size_t kShortContext = 16;

Gpt::Options small(bool is_rotary) {
  return {.sequences = 2,
          .context = 70,  // more than a block of rows of attention
          .tokens = 53,
          .layers = 3,
          .width = 48,
          .heads = 4,
          .positions = is_rotary ? Gpt::Positions::kRotary : Gpt::Positions::kLearned,
          .is_tied = !is_rotary,
          .seed = 3};
}

/// Those of a shape that --shape can name.
std::optional<Gpt::Options> shaped(const std::string& name) {
  const ModelEntry entry = Gpt::entry();
  const auto shape = std::ranges::find(entry.shapes, name, &ModelShape::name);
  if (shape == entry.shapes.end()) return std::nullopt;
  Config config;
  shape->set(config);
  return Gpt::Options{.sequences = 1,
                      .context = kShortContext,
                      .tokens = kGpt2Tokens,
                      .layers = config.layers,
                      .width = config.width,
                      .heads = config.heads,
                      .seed = 3};
}

std::vector<std::int32_t> random_tokens(std::uint64_t seed, const Gpt::Options& options) {
  Random random(seed);
  std::vector<std::int32_t> tokens(options.sequences * options.context);
  for (auto& token : tokens) token = static_cast<std::int32_t>(random.below(options.tokens));
  return tokens;
}

/// `names`: the parameters whose gradients are written; empty: all.
void run(const std::string& weights, const std::filesystem::path& folder,
         std::span<const std::string> names) {
  const bool is_rotary = weights == "rotary";
  const std::optional<Gpt::Options> shape = shaped(weights);
  const Gpt::Options options = shape.value_or(small(is_rotary));
  Device device;
  Gpt model(device, options);
  ParameterSet& parameters = model.parameters();
  parameters.own_gradients();
  if (weights != "gpt" && !is_rotary && !shape) {
    const std::vector<WeightLayout> layouts = {gpt2_layout()};
    import_weights(weights, parameters, layouts);
  }
  const std::vector<std::int32_t> tokens = random_tokens(1, options);
  const std::vector<std::int32_t> next = random_tokens(2, options);
  const TensorView inputs[] = {tokens};
  const TensorView targets[] = {next};
  dump_values(folder, parameters);
  dump<std::int32_t>(folder / "tokens", tokens);
  dump<std::int32_t>(folder / "next", next);
  SoftmaxCrossEntropy loss({.rows = tokens.size(), .classes = options.tokens});
  const std::span<const float> logits = model.forward(inputs, {});
  dump<float>(folder / "logits", logits);
  const auto rows = static_cast<float>(tokens.size());
  const double mean[] = {loss.evaluate(logits, targets, 1.0f / rows).loss / rows};
  dump<double>(folder / "loss", mean);
  model.backward(loss.gradient());
  dump_gradients(folder, parameters, names);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 2) {
    std::cerr << "usage: gpt_dump gpt|rotary|WEIGHTS|SHAPE FOLDER [NAME...]\n";
    return 64;
  }
  run(arguments[0], arguments[1], std::span(arguments).subspan(2));
  return 0;
}
