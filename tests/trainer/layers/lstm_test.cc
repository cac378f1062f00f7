// Tests recurrent layers and packed sequences.

#include "trainer/layers/lstm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "comm/base/error.h"
#include "tests/trainer/finite_difference.h"
#include "trainer/compute/device.h"

namespace kolo::trainer {
namespace {

using testing::Each;
using testing::ElementsAre;

/// Not a multiple of a vector, so that kernels have remaining elements.
constexpr std::size_t kLstmWidth = 19;
constexpr std::size_t kLstmInputs = 7;
constexpr Lstm::Options kLstm{.inputs = kLstmInputs, .width = kLstmWidth, .deviation = 0.4f};
/// These lengths need more than one block of rows, and have padding.
const std::vector<std::int32_t> kUnevenLengths = {3, 0, 6, 1, 6, 2};

PackedSequences pack(const std::vector<std::int32_t>& lengths) {
  PackedSequences sequences(lengths.size(), 6);
  sequences.assign(lengths);
  return sequences;
}

std::vector<std::size_t> row_numbers(const PackedSequences& sequences) {
  std::vector<std::size_t> all;
  for (const auto [sequence, step] : sequences.places()) all.push_back(10 * sequence + step);
  return all;
}

TEST(PackedSequencesTest, StandStepByStepTheLongestFirst) {
  PackedSequences sequences = pack({2, 4, 0, 1, 2});
  EXPECT_THAT(row_numbers(sequences), ElementsAre(10, 0, 40, 30, 11, 1, 41, 12, 13));
  std::vector<std::size_t> begins;
  for (const PackedSequences::Step step : sequences.steps()) begins.push_back(step.begin);
  EXPECT_THAT(begins, ElementsAre(0, 4, 7, 8));
  EXPECT_EQ(sequences.steps()[1].rows, 3u);
  EXPECT_EQ(sequences.length_of(4), 2u);
  EXPECT_EQ(sequences.rows(), PackedSequences::kRowBlock);
  EXPECT_EQ(sequences.capacity(), 2 * PackedSequences::kRowBlock);
}

TEST(PackedSequencesTest, AreReplacedByTheNextOnes) {
  PackedSequences sequences = pack({6, 6, 6});
  EXPECT_EQ(sequences.rows(), 2 * PackedSequences::kRowBlock);
  sequences.assign(std::vector<std::int32_t>{0, 1, 0});
  EXPECT_THAT(row_numbers(sequences), ElementsAre(10));
  EXPECT_EQ(sequences.rows(), PackedSequences::kRowBlock);
  sequences.assign(std::vector<std::int32_t>{0, 0, 0});
  EXPECT_TRUE(sequences.steps().empty());
  EXPECT_EQ(sequences.rows(), PackedSequences::kRowBlock);
  EXPECT_THROW(sequences.assign(std::vector<std::int32_t>{1}), UsageError);
}

/// Returns the input of all rows. The row of a step depends only on sequence and step.
std::vector<float> sequence_input(const PackedSequences& sequences, std::size_t width,
                                  std::size_t first_sequence = 0) {
  std::vector<float> values(sequences.rows() * width);
  auto into = values.begin();
  for (const auto [sequence, step] : sequences.places()) {
    into =
        std::ranges::copy(random_values(width, 100 * (first_sequence + sequence) + step), into).out;
  }
  return values;
}

TEST(LstmTest, GradientsMatchDifferences) {
  const PackedSequences sequences = pack(kUnevenLengths);
  Device device;
  ParameterSet parameters(1);
  Lstm layer(device, parameters, "lstm", sequences, kLstm);
  ASSERT_EQ(parameters.size(), 3u);
  check_layer(layer, parameters, random_values(sequences.rows() * kLstmInputs, 9));
}

/// Returns the states of one sequence, computed by definition in float64.
std::vector<float> states_by_definition(const ParameterSet& parameters,
                                        const std::vector<float>& input) {
  const auto value = [&](std::size_t parameter, std::size_t i) {
    return static_cast<double>(parameters[parameter].value()[i]);
  };
  std::vector<double> state(kLstmWidth), cell(kLstmWidth);
  std::vector<float> states;
  for (std::size_t t = 0; t < input.size() / kLstmInputs; ++t) {
    std::vector<double> gates(4 * kLstmWidth);
    for (std::size_t i = 0; i < gates.size(); ++i) {
      gates[i] = value(2, i);
      for (std::size_t j = 0; j < kLstmInputs; ++j) {
        gates[i] += value(0, i * kLstmInputs + j) * static_cast<double>(input[t * kLstmInputs + j]);
      }
      for (std::size_t j = 0; j < kLstmWidth; ++j)
        gates[i] += value(1, i * kLstmWidth + j) * state[j];
    }
    const auto logistic = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
    for (std::size_t i = 0; i < kLstmWidth; ++i) {
      cell[i] = logistic(gates[kLstmWidth + i]) * cell[i] +
                logistic(gates[i]) * std::tanh(gates[2 * kLstmWidth + i]);
      state[i] = logistic(gates[3 * kLstmWidth + i]) * std::tanh(cell[i]);
      states.push_back(static_cast<float>(state[i]));
    }
  }
  return states;
}

TEST(LstmTest, StatesFollowTheDefinition) {
  const PackedSequences sequences = pack({6});
  Device device;
  ParameterSet parameters(1);
  Lstm layer(device, parameters, "lstm", sequences, kLstm);
  std::ranges::copy(random_values(4 * kLstmWidth, 3), parameters[2].value().begin());
  std::vector<float> input = sequence_input(sequences, kLstmInputs);
  for (float& value : input) value *= 30.0f;  // so that some gates are far from zero
  const std::span<const float> y = layer.forward(input, {});
  input.resize(6 * kLstmInputs);
  const std::vector<float> expected = states_by_definition(parameters, input);
  // States are below 1. Bound: a dozen roundings of gates up to 100, reduced by squashing.
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(y[i], expected[i], 2e-5f) << i;
}

struct LstmResults {
  std::vector<std::vector<float>> y, dx;  // by sequence
  std::vector<float> gradients;           // of all parameters
};

/// Runs a pass over the sequences from `first` on.
LstmResults run_lstm(const std::vector<std::int32_t>& lengths, std::size_t first) {
  const PackedSequences sequences = pack(lengths);
  Device device;
  ParameterSet parameters(1);
  Lstm layer(device, parameters, "lstm", sequences, kLstm);
  parameters.own_gradients();
  LstmResults results{.y = std::vector<std::vector<float>>(lengths.size()),
                      .dx = std::vector<std::vector<float>>(lengths.size()),
                      .gradients = {}};
  const auto split = [&](std::span<const float> values, std::vector<std::vector<float>>& into) {
    const std::size_t width = values.size() / sequences.rows();
    for (std::size_t row = 0; row < sequences.places().size(); ++row) {
      std::vector<float>& of = into[sequences.places()[row].sequence];
      const auto part = values.subspan(row * width, width);
      of.insert(of.end(), part.begin(), part.end());
    }
  };
  const std::vector<float> input = sequence_input(sequences, kLstmInputs, first);
  split(layer.forward(input, {}), results.y);
  split(layer.backward(sequence_input(sequences, kLstmWidth, first)), results.dx);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto gradient = parameters[i].gradient();
    results.gradients.insert(results.gradients.end(), gradient.begin(), gradient.end());
  }
  return results;
}

void expect_same_sums(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], 1e-5f * (1.0f + std::abs(expected[i]))) << i;
  }
}

// Bound: the order of sums differs with the shapes of products, by a few roundings.
TEST(LstmTest, ABatchOfUnevenLengthsIsWhatEachIsAlone) {
  const LstmResults together = run_lstm(kUnevenLengths, 0);
  std::vector<float> gradients(together.gradients.size());
  for (std::size_t i = 0; i < kUnevenLengths.size(); ++i) {
    SCOPED_TRACE(i);
    const LstmResults alone = run_lstm({kUnevenLengths[i]}, i);
    expect_same_sums(together.y[i], alone.y[0]);
    expect_same_sums(together.dx[i], alone.dx[0]);
    for (std::size_t j = 0; j < gradients.size(); ++j) gradients[j] += alone.gradients[j];
  }
  expect_same_sums(together.gradients, gradients);
}

TEST(LstmTest, SequencesWithoutStepsHaveGradientsOfZero) {
  EXPECT_THAT(run_lstm({0, 0}, 0).gradients, Each(0.0f));
}

TEST(SequenceMeanTest, GradientsMatchDifferences) {
  const PackedSequences sequences = pack(kUnevenLengths);
  ParameterSet none(1);
  SequenceMean layer(sequences, kLstmWidth);
  check_layer(layer, none, random_values(sequences.rows() * kLstmWidth, 9));
}

TEST(SequenceMeanTest, TakesTheMeanOfTheStepsThatAreThere) {
  const PackedSequences sequences = pack({2, 0, 3});
  SequenceMean layer(sequences, 1);
  std::vector<float> input(sequences.rows(), 1e9f);  // padding must have no effect
  for (std::size_t row = 0; row < sequences.places().size(); ++row) {
    const auto [sequence, step] = sequences.places()[row];
    input[row] = static_cast<float>(10 * sequence + step);
  }
  EXPECT_THAT(layer.forward(input, {}), ElementsAre(0.5f, 0.0f, testing::FloatEq(21.0f)));
}

}  // namespace
}  // namespace kolo::trainer
