// Tests batch norm over the samples of two ranks, each a thread.

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <thread>
#include <vector>

#include "tests/trainer/finite_difference.h"
#include "trainer/layers/normalization.h"

namespace kolo::trainer {
namespace {

std::vector<float> values_of(std::span<const float> values) {
  return {values.begin(), values.end()};
}

/// Sums values over two ranks.
class TwoRanks {
 public:
  RankSums of_rank(std::size_t rank) {
    return [this, rank](std::string_view, std::span<double> values) {
      given_[rank].assign(values.begin(), values.end());
      all_gave_.arrive_and_wait();
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = given_[0][i] + given_[1][i];
      all_gave_.arrive_and_wait();
    };
  }

 private:
  std::vector<double> given_[2];
  std::barrier<> all_gave_{2};
};

// Bound: float64 sums have another order, and results are rounded to float32 once.
TEST(SyncBatchNormTest, SynchronizedRanksDoWhatOneRankDoesWithAllSamples) {
  constexpr std::size_t kSample = 2 * 3;  // 2 rows of 3 channels
  const std::vector<float> x = random_values(5 * kSample, 5);
  const std::vector<float> dy = random_values(5 * kSample, 6);
  ParameterSet whole_parameters(1);
  BatchNorm whole(whole_parameters, "norm", {.samples = 5, .rows_per_sample = 2, .channels = 3});
  whole_parameters.own_gradients();
  const std::vector<float> y = values_of(whole.forward(x, {}));
  const std::vector<float> dx = values_of(whole.backward(dy));

  TwoRanks ranks;
  const auto run_rank = [&](std::size_t rank, std::size_t begin, std::size_t samples) {
    ParameterSet parameters(1);
    BatchNorm layer(
        parameters, "norm",
        {.samples = 3, .rows_per_sample = 2, .channels = 3, .sum_over_ranks = ranks.of_rank(rank)});
    parameters.own_gradients();
    std::vector<float> input(3 * kSample);
    std::vector<float> gradient(3 * kSample);
    std::copy_n(x.begin() + static_cast<long>(begin), samples * kSample, input.begin());
    std::copy_n(dy.begin() + static_cast<long>(begin), samples * kSample, gradient.begin());
    const std::vector<float> own_y = values_of(layer.forward(input, {.samples = samples}));
    const std::vector<float> own_dx = values_of(layer.backward(gradient));
    for (std::size_t i = 0; i < samples * kSample; ++i) {
      EXPECT_NEAR(own_y[i], y[begin + i], 1e-6f);
      EXPECT_NEAR(own_dx[i], dx[begin + i], 1e-5f);
    }
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(parameters.buffers()[1].value.span()[i],
                  whole_parameters.buffers()[1].value.span()[i], 1e-6f);
    }
    return values_of(parameters[0].gradient());
  };
  std::vector<float> second;
  std::thread other([&] { second = run_rank(1, 3 * kSample, 2); });
  const std::vector<float> first = run_rank(0, 0, 3);
  other.join();
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(first[i] + second[i], whole_parameters[0].gradient()[i], 1e-5f);
  }
}

}  // namespace
}  // namespace kolo::trainer
