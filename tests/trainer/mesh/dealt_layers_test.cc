// Compares layers that two ranks divide with the same layers on one rank. Ranks are threads.

#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/trainer/finite_difference.h"
#include "trainer/layers/tables.h"
#include "trainer/layers/transformer_blocks.h"
#include "trainer/loss/loss.h"

namespace kolo::trainer {
namespace {

constexpr std::size_t kRanks = 2;

/// Makes the exchanges of two ranks that are threads.
class Threads {
 public:
  TensorRanks of_rank(std::size_t rank) {
    return {.index = rank,
            .ways = kRanks,
            .sum = [this, rank](std::string_view, std::span<float> values) {
              given_[rank].assign(values.begin(), values.end());
              all_gave_.arrive_and_wait();
              for (std::size_t i = 0; i < values.size(); ++i) {
                values[i] = given_[0][i] + given_[1][i];
              }
              all_gave_.arrive_and_wait();
            }};
  }
  void run(const std::function<void(const TensorRanks&)>& body) {
    std::thread other([&] { body(of_rank(1)); });
    body(of_rank(0));
    other.join();
  }

 private:
  std::vector<float> given_[kRanks];
  std::barrier<> all_gave_{kRanks};
};

/// Sums of n products of numbers near 1 differ by at most n roundings of 2^-24 each. In these
/// layers, n is below 100, and at most three such sums follow each other.
constexpr float kLayerBound = 2e-5f;

void expect_near(std::span<const float> actual, std::span<const float> expected,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], kLayerBound) << what << " " << i;
  }
}

/// Checks the gradients of a part against those of the whole layer.
void expect_part_of_gradients(const ParameterSet& part, const ParameterSet& whole) {
  ASSERT_EQ(part.size(), whole.size());
  for (std::size_t i = 0; i < part.size(); ++i) {
    const Parameter& own = part[i];
    std::vector<float> expected(own.size());
    own.part().take(whole[i].shape(), whole[i].value(), expected);
    EXPECT_TRUE(std::ranges::equal(own.value(), expected)) << own.name();
    own.part().take(whole[i].shape(), whole[i].gradient(), expected);
    expect_near(own.gradient(), expected, own.name());
  }
}

TEST(DealtLayersTest, ABlockDoesWhatItDoesOnOneRank) {
  for (const bool is_rotary : {false, true}) {
    TransformerBlock::Options options{
        .attention = {.sequences = 2,
                      .length = 5,
                      .width = 8,
                      .heads = 4,
                      .dropout = {.share = 0.3f, .seed = 3, .layer = 1}},
        .deviation = 0.5f,
        .residual_deviation = 0.5f,
        .has_rotary_positions = is_rotary};
    const std::vector<float> x = random_values(80, 5);
    const std::vector<float> dy = random_values(80, 6);
    Device device;
    ParameterSet whole_parameters(1);
    TransformerBlock whole(device, whole_parameters, "block", options);
    whole_parameters.own_gradients();
    EXPECT_EQ(whole_parameters.size(), TransformerBlock::kParameters);
    const std::span<const float> y = whole.forward(x, {});
    const std::span<const float> dx = whole.backward(dy);

    Threads().run([&](const TensorRanks& ranks) {
      TransformerBlock::Options dealt = options;
      dealt.ranks = ranks;
      Device own_device;
      ParameterSet parameters(1);
      TransformerBlock block(own_device, parameters, "block", dealt);
      parameters.own_gradients();
      expect_near(block.forward(x, {}), y, "output");
      expect_near(block.backward(dy), dx, "input gradient");
      expect_part_of_gradients(parameters, whole_parameters);
    });
  }
}

TEST(DealtLayersTest, AnEmbeddingOfAnOddVocabularyDoesWhatItDoesOnOneRank) {
  Embedding::Options options{
      .sequences = 2, .length = 3, .tokens = 7, .width = 4, .deviation = 1.0f};
  const std::vector<std::int32_t> ids = {0, 6, 3, 2, 3, 5};
  const std::vector<float> dy = random_values(24, 6);
  ParameterSet whole_parameters(1);
  Embedding whole(whole_parameters, "embedding", options);
  whole_parameters.own_gradients();
  const std::span<const float> y = whole.forward(ids);
  whole.backward(dy);
  Threads().run([&](const TensorRanks& ranks) {
    Embedding::Options dealt = options;
    dealt.ranks = ranks;
    ParameterSet parameters(1);
    Embedding embedding(parameters, "embedding", dealt);
    parameters.own_gradients();
    expect_near(embedding.forward(ids), y, "output");
    embedding.backward(dy);
    expect_part_of_gradients(parameters, whole_parameters);
  });
}

TEST(DealtLayersTest, TheLossOfDealtClassesIsThatOfAllClasses) {
  constexpr std::size_t kClasses = 7;
  for (const float smoothing : {0.0f, 0.2f}) {
    const SoftmaxCrossEntropy::Options options{
        .rows = 5, .classes = kClasses, .label_smoothing = smoothing};
    std::vector<float> logits = random_values(5 * kClasses, 9);
    for (float& logit : logits) logit *= 20.0f;
    logits[1] = logits[5] = 30.0f;  // equal largest logits on both ranks, of which the first counts
    const std::vector<std::int32_t> targets = {1, kNoTarget, 6, 0};  // the last row is padding
    const TensorView view(targets);
    SoftmaxCrossEntropy whole(options);
    const LossSums expected = whole.evaluate(logits, {&view, 1}, 0.5f);
    Threads().run([&](const TensorRanks& ranks) {
      const Part part = ranks.inputs();
      std::vector<float> own(element_count(part.shape_of({5, kClasses})));
      part.take({5, kClasses}, logits, own);
      SoftmaxCrossEntropy::Options dealt = options;
      dealt.ranks = ranks;
      SoftmaxCrossEntropy loss(dealt);
      const LossSums sums = loss.evaluate(own, {&view, 1}, 0.5f);
      EXPECT_NEAR(sums.loss, expected.loss, 1e-6 * expected.loss);
      EXPECT_EQ(sums.score, expected.score);
      EXPECT_EQ(sums.rows, expected.rows);
      part.take({5, kClasses}, whole.gradient(), own);
      expect_near(loss.gradient(), own, "gradient");
    });
  }
}

}  // namespace
}  // namespace kolo::trainer
