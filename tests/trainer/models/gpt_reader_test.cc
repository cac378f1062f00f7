#include "trainer/models/gpt_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "trainer/random.h"

namespace kolo::trainer {
namespace {

constexpr std::size_t kTokens = 31;

std::vector<std::int32_t> random_text(std::size_t length) {
  Random random(5);
  std::vector<std::int32_t> text(length);
  for (auto& token : text) token = static_cast<std::int32_t>(random.below(kTokens));
  return text;
}

/// Enlarges the weights, so that each token has an influence.
void enlarge(ParameterSet& parameters) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].shape().size() < 2) continue;
    for (float& value : parameters[i].value()) value *= 10.0f;
  }
}

class GptReaderTest : public testing::TestWithParam<std::string> {
 protected:
  /// Returns the shape of a model. `context` is longer than a chunk, or a few tokens.
  Gpt::Options shape(std::size_t context) {
    return {.sequences = 1,
            .context = context,
            .tokens = kTokens,
            .model = {.layers = 2, .width = 16, .heads = 2, .positions = GetParam(), .tied = false},
            .seed = 3};
  }

  /// Returns the logits of the token after `text`, computed by a full pass.
  std::vector<float> full_pass(const ParameterSet& weights, std::size_t context,
                               std::span<const std::int32_t> text) {
    Gpt model(device_, shape(context));
    model.parameters().copy_values(weights);
    std::vector<std::int32_t> window(context);  // later tokens have no influence
    std::ranges::copy(text, window.begin());
    const TensorView inputs[] = {window};
    const auto logits = model.forward(inputs, {.is_training = false});
    const auto row = logits.subspan((text.size() - 1) * kTokens, kTokens);
    return {row.begin(), row.end()};
  }

  Device device_;
};

// Bound: sums of up to 100 terms in another order, in each of two blocks. Logits are below 10.
constexpr float kBound = 1e-4f;

void expect_near(std::span<const float> actual, const std::vector<float>& expected,
                 std::size_t position) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], kBound) << "position " << position << ", token " << i;
  }
}

TEST_P(GptReaderTest, GivesWhatAFullPassGivesAtEveryPosition) {
  constexpr std::size_t kContext = 70;
  Gpt model(device_, shape(kContext));
  enlarge(model.parameters());
  const std::vector<std::int32_t> text = random_text(kContext);
  const TensorView inputs[] = {text};
  const auto logits = model.forward(inputs, {.is_training = false});
  GptReader reader(model.options(), model.parameters());
  for (std::size_t i = 0; i < kContext; ++i) {
    const auto row = logits.subspan(i * kTokens, kTokens);
    expect_near(reader.read(std::span(text).subspan(i, 1)), {row.begin(), row.end()}, i);
  }
}

TEST_P(GptReaderTest, GoesOnWithTheLaterHalfOfAFullWindow) {
  constexpr std::size_t kContext = 7;
  Gpt model(device_, shape(kContext));
  enlarge(model.parameters());
  const ParameterSet& weights = model.parameters();
  const std::vector<std::int32_t> text = random_text(3 * kContext);
  GptReader reader(model.options(), weights);
  // The window begins at the same token until it is full.
  const std::size_t begins[] = {0, 0, 0, 0, 0,  0,  0,  4,  4,  4, 4,
                                8, 8, 8, 8, 12, 12, 12, 12, 16, 16};
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto window = std::span(text).subspan(begins[i], i + 1 - begins[i]);
    expect_near(reader.read(std::span(text).subspan(i, 1)), full_pass(weights, kContext, window),
                i);
  }
}

TEST_P(GptReaderTest, TheDivisionOfATextIntoCallsHasNoInfluence) {
  for (const std::size_t context : {1u, 2u, 7u, 130u}) {
    SCOPED_TRACE(context);
    Gpt model(device_, shape(context));
    enlarge(model.parameters());
    const std::vector<std::int32_t> text = random_text(300);
    GptReader at_once(model.options(), model.parameters());
    GptReader by_token(model.options(), model.parameters());
    std::span<const float> last;
    for (std::size_t i = 0; i < text.size(); ++i) {
      last = by_token.read(std::span(text).subspan(i, 1));
    }
    expect_near(at_once.read(text), {last.begin(), last.end()}, text.size() - 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Positions, GptReaderTest, testing::Values("learned", "rotary"),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace kolo::trainer
