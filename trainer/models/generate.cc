#include "trainer/models/generate.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "comm/base/check.h"
#include "trainer/compute/device.h"
#include "trainer/random.h"

namespace kolo::trainer {
namespace {

std::size_t draw(std::span<const float> logits, double temperature, Random& random) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (temperature <= 0.0) return static_cast<std::size_t>(best - logits.begin());
  std::vector<double> weights;
  double sum = 0.0;
  for (const float logit : logits) {
    weights.push_back(std::exp(static_cast<double>(logit - *best) / temperature));
    sum += weights.back();
  }
  double left = static_cast<double>(random.uniform()) * sum;
  for (std::size_t i = 0; i + 1 < weights.size(); ++i) {
    if (left < weights[i]) return i;
    left -= weights[i];
  }
  return weights.size() - 1;
}

}  // namespace

std::string generate(Gpt::Options shape, const ParameterSet& weights,
                     const GenerateOptions& options) {
  check(!options.prompt.empty(), "a prompt holds at least one byte");
  shape.sequences = 1;
  Device device;
  Gpt single(device, shape);
  single.parameters().copy_values(weights);

  Random random(options.seed);
  std::string text = options.prompt;
  std::vector<std::int32_t> window(shape.context);
  while (text.size() < options.prompt.size() + options.bytes) {
    // Attention sees earlier positions only, so the bytes after the last one have no influence.
    const std::size_t used = std::min(text.size(), shape.context);
    std::transform(text.end() - static_cast<std::ptrdiff_t>(used), text.end(), window.begin(),
                   [](char c) { return static_cast<unsigned char>(c); });
    const TensorView inputs[] = {window};
    const std::span<const float> logits = single.forward(inputs, {.is_training = false});
    const std::size_t classes = logits.size() / shape.context;
    const std::size_t byte =
        draw(logits.subspan((used - 1) * classes, classes), options.temperature, random);
    text.push_back(static_cast<char>(byte));
  }
  return text.substr(options.prompt.size());
}

std::string printable(std::string text) {
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F) c = '?';
  }
  return text;
}

}  // namespace kolo::trainer
