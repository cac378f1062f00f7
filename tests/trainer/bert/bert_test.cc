// The model bert as a whole.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "comm/base/error.h"
#include "tests/trainer/finite_difference.h"
#include "trainer/catalog.h"
#include "trainer/compute/device.h"
#include "trainer/config.h"
#include "trainer/models/bert.h"

namespace kolo::trainer {
namespace {

using testing::HasSubstr;

constexpr std::size_t kMostTokens = 6;
constexpr std::size_t kTokens = 9;
constexpr std::size_t kClasses = 3;

/// With `chosen` tokens to predict, or one class for each text.
class BertTest : public testing::TestWithParam<std::size_t> {
 protected:
  std::size_t chosen() const { return GetParam(); }
  std::size_t outputs() const { return chosen() > 0 ? chosen() * kTokens : kClasses; }

  std::unique_ptr<Bert> make(std::size_t texts) {
    auto model = std::make_unique<Bert>(device_, Bert::Options{.texts = texts,
                                                               .length = kMostTokens,
                                                               .tokens = kTokens,
                                                               .chosen = chosen(),
                                                               .classes = kClasses,
                                                               .layers = 2,
                                                               .width = 8,
                                                               .heads = 2,
                                                               .dropout = 0.2f,
                                                               .seed = 3});
    // Initial weights of 0.02 hide mistakes behind residual connections.
    ParameterSet& parameters = model->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      for (float& value : parameters[i].value()) value = value == 1.0f ? 1.0f : 10.0f * value;
    }
    parameters.own_gradients();
    return model;
  }

  /// Texts from `begin` on of a batch of `capacity`, of which the last are padding.
  std::vector<TensorView> batch(std::size_t begin, std::size_t texts, std::size_t capacity) {
    const auto draw = [&](std::size_t elements, std::int32_t lowest, std::size_t values) {
      Random random(5, elements * values);
      std::vector<std::int32_t> all((begin + texts) * elements);
      for (auto& value : all) value = lowest + static_cast<std::int32_t>(random.below(values));
      all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(begin * elements));
      all.resize(capacity * elements);
      return all;
    };
    memory_ = {draw(kMostTokens, 0, kTokens), draw(1, 2, kMostTokens - 1)};
    if (chosen() > 0) memory_.push_back(draw(chosen(), 0, 2));
    return {memory_.begin(), memory_.end()};
  }

  std::vector<float> gradients(std::size_t begin, std::size_t texts, std::size_t capacity) {
    const auto model = make(capacity);
    std::vector<float> slopes = random_values(5 * outputs(), 7);
    slopes.erase(slopes.begin(), slopes.begin() + static_cast<std::ptrdiff_t>(begin * outputs()));
    slopes.resize(texts * outputs());
    slopes.resize(capacity * outputs());
    model->forward(batch(begin, texts, capacity), {.samples = texts, .first_position = begin});
    model->backward(slopes);
    std::vector<float> all;
    for (std::size_t i = 0; i < model->parameters().size(); ++i) {
      const std::span<const float> gradient = model->parameters()[i].gradient();
      all.insert(all.end(), gradient.begin(), gradient.end());
    }
    return all;
  }

  Device device_;

 private:
  std::vector<std::vector<std::int32_t>> memory_;
};

TEST_P(BertTest, GradientsMatchDifferences) {
  const auto model = make(3);
  const std::vector<TensorView> inputs = batch(0, 3, 3);
  const std::vector<float> slopes = random_values(3 * outputs(), 7);
  const auto f = [&] { return dot(model->forward(inputs, {}), slopes); };
  EXPECT_EQ(model->forward(inputs, {}).size(), 3 * outputs());
  model->backward(slopes);
  ParameterSet& parameters = model->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    expect_parameter_gradient(f, parameters[i]);
  }
}

// Dropout follows the sample, and missing samples count for nothing. Bound: sums of some hundred
// terms near 1 in another order.
TEST_P(BertTest, PartsOfABatchAddUpToIt) {
  const std::vector<float> whole = gradients(0, 5, 5);
  const std::vector<float> first = gradients(0, 3, 3);
  const std::vector<float> second = gradients(3, 2, 3);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    ASSERT_NEAR(first[i] + second[i], whole[i], 2e-5f) << i;
  }
}

TEST_P(BertTest, WordsBehindTheLengthHaveNoInfluence) {
  const auto model = make(1);
  std::vector<std::int32_t> tokens = {2, 4, 5, 6, 0, 0}, length = {4}, places(chosen(), 1);
  std::vector<TensorView> inputs = {tokens, length};
  if (chosen() > 0) inputs.emplace_back(places);
  const auto output = model->forward(inputs, {});
  const std::vector<float> before(output.begin(), output.end());
  tokens[4] = 7;
  const auto after = model->forward(inputs, {});
  EXPECT_EQ(before, std::vector<float>(after.begin(), after.end()));
}

INSTANTIATE_TEST_SUITE_P(Heads, BertTest, testing::Values(0u, 2u), [](const auto& tested) {
  return tested.param > 0 ? "masked_tokens" : "text_class";
});

TEST(BertOptionsTest, RefuseOtherSamples) {
  Config config = default_config(built_in_catalog(), "bert");
  const auto error = [&](const SampleFormat& format) -> std::string {
    try {
      Bert::options({.config = config, .format = format, .outputs = 2, .batch = 1});
    } catch (const KoloError& refused) {
      EXPECT_EQ(refused.error().code, ErrorCode::kConfig);
      return refused.what();
    }
    return "no error";
  };
  const Field tokens{.name = "tokens", .dtype = DType::kInt32, .shape = {4}, .values = 9};
  const Field length{.name = "length", .dtype = DType::kInt32, .values = 5};
  EXPECT_THAT(error({.inputs = {tokens}, .targets = {}}), HasSubstr("choose --task"));
  config.heads = 3;
  EXPECT_THAT(error({.inputs = {tokens, length}, .targets = {}}), HasSubstr("--heads 3"));
  config.text_marks = false;
  EXPECT_THAT(error({.inputs = {tokens, length}, .targets = {}}), HasSubstr("--text-marks on"));
}

TEST(BertOptionsTest, OtherModelsRefuseHiddenWords) {
  Field tokens{.name = "tokens", .dtype = DType::kInt32, .shape = {4}, .values = 9};
  const SampleFormat format{.inputs = {tokens, tokens, tokens}, .targets = {tokens}};
  const Catalog catalog = built_in_catalog();
  for (const char* model : {"embedding-bag", "gpt"}) {
    const Config config = default_config(catalog, model);
    Device device;
    try {
      catalog.models.at(model).make({.config = config, .format = format, .outputs = 9, .batch = 1},
                                    device);
      ADD_FAILURE() << model;
    } catch (const KoloError& refused) {
      EXPECT_EQ(refused.error().code, ErrorCode::kConfig);
      EXPECT_THAT(refused.what(), HasSubstr("choose --task")) << model;
    }
  }
}

}  // namespace
}  // namespace kolo::trainer
