#include "trainer/models/gpt_reader.h"

#include <algorithm>
#include <cmath>

#include "comm/base/check.h"
#include "trainer/layers/attention.h"
#include "trainer/random.h"

namespace kolo::trainer {
namespace {

/// Largest number of tokens per pass: enough for fast products, with little memory.
constexpr std::size_t kChunk = SelfAttention::kBlockRows;

Gpt::Options reading(Gpt::Options shape) {
  shape.sequences = 1;
  shape.chunk = std::min(shape.context, kChunk);
  return shape;
}

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

GptReader::GptReader(Gpt::Options shape, const ParameterSet& weights)
    : gpt_(device_, reading(shape)) {
  gpt_.parameters().copy_values(weights);
}

std::span<const float> GptReader::read(std::span<const std::int32_t> tokens) {
  check(!tokens.empty(), "a reader needs tokens");
  const std::size_t context = gpt_.options().context;
  std::span<const float> logits;
  while (!tokens.empty()) {
    if (window_.size() == context) {
      const std::size_t kept = (context + 1) / 2 - 1;  // half the context with the next token
      const std::vector<std::int32_t> later(window_.end() - static_cast<std::ptrdiff_t>(kept),
                                            window_.end());
      window_.clear();
      if (!later.empty()) compute(later);
    }
    const auto part = tokens.first(std::min(tokens.size(), context - window_.size()));
    logits = compute(part);
    tokens = tokens.subspan(part.size());
  }
  return logits;
}

/// Computes `tokens`, adds them to the window, and returns the logits after the last one. Before:
/// the window has room for them.
std::span<const float> GptReader::compute(std::span<const std::int32_t> tokens) {
  std::span<const float> last_row;
  while (!tokens.empty()) {
    const auto part = tokens.first(std::min(tokens.size(), *gpt_.options().chunk));
    const TensorView inputs[] = {part};
    const auto logits = gpt_.forward(inputs, {.is_training = false, .past = window_.size()});
    last_row = logits.last(logits.size() / part.size());
    window_.insert(window_.end(), part.begin(), part.end());
    tokens = tokens.subspan(part.size());
  }
  return last_row;
}

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
