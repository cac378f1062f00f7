#include "trainer/models/gpt_reader.h"

#include <algorithm>

#include "comm/base/check.h"

namespace kolo::trainer {
namespace {

/// Tokens of a pass at most: as many as make products fast, with little memory.
constexpr std::size_t kChunk = SelfAttention::kBlockRows;

Gpt::Options reading(Gpt::Options shape) {
  shape.sequences = 1;
  shape.chunk = std::min(shape.context, kChunk);
  return shape;
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
      const std::size_t kept = (context + 1) / 2 - 1;  // the next token makes it half
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

/// Before: the window has room for `tokens`.
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

}  // namespace kolo::trainer
