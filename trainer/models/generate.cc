#include "trainer/models/generate.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "comm/base/check.h"
#include "trainer/models/gpt_reader.h"
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

std::string generate(const Gpt::Options& shape, const ParameterSet& weights,
                     const Tokenizer& tokenizer, const GenerateOptions& options) {
  check(!options.prompt.empty(), "a prompt holds at least one byte");
  GptReader reader(shape, weights);
  Random random(options.seed);
  std::vector<std::int32_t> unread = tokenizer.encode(options.prompt);
  std::string text;
  while (text.size() < options.bytes) {
    unread = {static_cast<std::int32_t>(draw(reader.read(unread), options.temperature, random))};
    text += tokenizer.bytes_of(unread[0]);
  }
  return text;
}

std::string printable(std::string text) {
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F) c = '?';
  }
  return text;
}

}  // namespace kolo::trainer
