// Models whose tables have gradients of rows.

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/trainer/finite_difference.h"
#include "trainer/compute/device.h"
#include "trainer/models/matrix_factorization.h"
#include "trainer/models/text_models.h"

namespace kolo::trainer {
namespace {

struct RowModelCase {
  std::string name;
  std::size_t outputs;
  std::vector<std::size_t> elements;  // of a sample, by input
  std::int32_t lowest, highest;       // of all inputs
  std::function<std::unique_ptr<Model>(Device&, std::size_t samples)> make;
};

void PrintTo(const RowModelCase& c, std::ostream* out) { *out << c.name; }

TextModelOptions small_texts(std::size_t samples) {
  return {.texts = samples,
          .length = 6,
          .words = 7,
          .width = 5,
          .classes = 3,
          .dropout = 0.4f,
          .seed = 3};
}

std::vector<RowModelCase> row_model_cases() {
  return {{"embedding_bag",
           3,
           {6, 1},
           0,
           6,
           [](Device& device, std::size_t samples) {
             return std::make_unique<EmbeddingBagClassifier>(device, small_texts(samples));
           }},
          {"lstm",
           3,
           {6, 1},
           1,
           6,
           [](Device& device, std::size_t samples) {
             return std::make_unique<LstmClassifier>(device, small_texts(samples));
           }},
          {"matrix_factorization", 1, {1, 1}, 1, 6, [](Device&, std::size_t samples) {
             return std::make_unique<MatrixFactorization>(MatrixFactorization::Options{
                 .ratings = samples, .users = 7, .items = 8, .width = 5, .mean = 3.5f, .seed = 3});
           }}};
}

class RowModelTest : public testing::TestWithParam<RowModelCase> {
 protected:
  /// Samples from `begin` on of `capacity`, of which the last are padding.
  const std::vector<TensorView>& batch(std::size_t begin, std::size_t samples,
                                       std::size_t capacity) {
    const RowModelCase& c = GetParam();
    memory_.clear();
    for (std::size_t input = 0; input < c.elements.size(); ++input) {
      Random random(5, input);
      std::vector<std::int32_t> all((begin + samples) * c.elements[input]);
      for (auto& value : all) {
        const auto values = static_cast<std::uint64_t>(c.highest - c.lowest + 1);
        value = c.lowest + static_cast<std::int32_t>(random.below(values));
      }
      auto& taken = memory_.emplace_back(
          all.begin() + static_cast<std::ptrdiff_t>(begin * c.elements[input]), all.end());
      taken.resize(capacity * c.elements[input]);
    }
    views_.assign(memory_.begin(), memory_.end());
    return views_;
  }

  /// The gradients of all parameters, tables as wholes, for random slopes of the outputs.
  std::vector<float> gradients(std::size_t begin, std::size_t samples, std::size_t capacity,
                               bool by_row) {
    const RowModelCase& c = GetParam();
    Device device;
    const auto model = c.make(device, capacity);
    ParameterSet& parameters = model->parameters();
    if (by_row) parameters.use_rows();
    parameters.own_gradients();
    std::vector<float> slopes = random_values(5 * c.outputs, 7);
    slopes.erase(slopes.begin(), slopes.begin() + static_cast<std::ptrdiff_t>(begin * c.outputs));
    slopes.resize(samples * c.outputs);
    slopes.resize(capacity * c.outputs);
    model->forward(batch(begin, samples, capacity), {.samples = samples, .first_position = begin});
    model->backward(slopes);
    std::vector<float> all;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const std::size_t offset = all.size();
      all.resize(offset + parameters[i].size());
      parameters[i].visit_gradient([&](std::size_t at, std::span<const float> part) {
        for (std::size_t j = 0; j < part.size(); ++j) all[offset + at + j] += part[j];
      });
    }
    return all;
  }

 private:
  std::vector<std::vector<std::int32_t>> memory_;
  std::vector<TensorView> views_;
};

TEST_P(RowModelTest, GradientsMatchDifferences) {
  const RowModelCase& c = GetParam();
  Device device;
  const auto model = c.make(device, 4);
  ParameterSet& parameters = model->parameters();
  parameters.own_gradients();
  const std::vector<TensorView> inputs = batch(0, 4, 4);
  const std::vector<float> slopes = random_values(4 * c.outputs, 7);
  const auto f = [&] { return dot(model->forward(inputs, {}), slopes); };
  EXPECT_EQ(model->forward(inputs, {}).size(), 4 * c.outputs);
  model->backward(slopes);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    expect_parameter_gradient(f, parameters[i]);
  }
}

TEST_P(RowModelTest, RowsSayWhatWholeGradientsSay) {
  const std::vector<float> whole = gradients(0, 5, 5, false);
  const std::vector<float> by_row = gradients(0, 5, 5, true);
  ASSERT_EQ(whole.size(), by_row.size());
  for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(by_row[i], whole[i], 1e-6f) << i;
}

// Dropout follows the sample, and padding counts for nothing.
TEST_P(RowModelTest, PartsOfABatchAddUpToIt) {
  for (const bool by_row : {false, true}) {
    const std::vector<float> whole = gradients(0, 5, 5, by_row);
    const std::vector<float> first = gradients(0, 3, 3, by_row);
    const std::vector<float> second = gradients(3, 2, 3, by_row);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      ASSERT_NEAR(first[i] + second[i], whole[i], 1e-6f) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RowModelTest, testing::ValuesIn(row_model_cases()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace kolo::trainer
