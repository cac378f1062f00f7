#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trainer/layers/layer.h"
#include "trainer/parameter_set.h"
#include "trainer/random.h"

namespace kolo::trainer {

inline std::vector<float> random_values(std::size_t count, std::uint64_t seed) {
  Random random(seed, 1'000'000);
  std::vector<float> values(count);
  for (float& value : values) value = 2.0f * random.uniform() - 1.0f;
  return values;
}

inline double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return sum;
}

/// The bound within which a gradient must match finite differences. Differences with steps h and
/// h/2 are combined so that the h² term cancels (Richardson); terms of h⁴ and roundings remain.
/// Rounding adds about 2^-23 |f| / h: with |f| near 10, 2e-4 for the default step and 1e-3 for h =
/// 2^-10.
struct DifferenceBound {
  float step = 0x1.0p-7f;
  double absolute = 2e-3;
  double relative = 0.01;
  /// Share of points that may be near a kink of a piecewise smooth function (ReLU, pooling). At a
  /// kink, the difference is not the derivative.
  double kinks = 0.0;
};

/// Compares `gradient` with central differences of `f` at up to 40 of the `values`.
inline void expect_gradient(const std::function<double()>& f, std::span<float> values,
                            std::span<const float> gradient, const std::string& what,
                            const DifferenceBound& bound = {}) {
  ASSERT_EQ(values.size(), gradient.size()) << what;
  const auto difference = [&](std::size_t i, float step) {
    const float kept = values[i];
    values[i] = kept + step;
    const double above = f();
    values[i] = kept - step;
    const double below = f();
    values[i] = kept;
    return (above - below) / (2.0 * static_cast<double>(step));
  };
  const std::size_t stride = values.size() / 40 + 1;
  std::size_t checked = 0;
  std::vector<std::string> wrong;
  for (std::size_t i = 0; i < values.size(); i += stride) {
    const double expected = (4.0 * difference(i, bound.step / 2) - difference(i, bound.step)) / 3.0;
    const auto actual = static_cast<double>(gradient[i]);
    const double most = bound.absolute + bound.relative * std::abs(expected);
    if (!(std::abs(actual - expected) <= most)) {  // true for NaN too
      wrong.push_back(what + "[" + std::to_string(i) + "]: gradient " + std::to_string(actual) +
                      ", difference " + std::to_string(expected));
    }
    ++checked;
  }
  if (static_cast<double>(wrong.size()) > bound.kinks * static_cast<double>(checked)) {
    ADD_FAILURE() << wrong.size() << " of " << checked << " wrong, the first is " << wrong.front();
  }
}

/// Compares the gradient of a parameter. The parameter's version changes with its values.
inline void expect_parameter_gradient(const std::function<double()>& f, Parameter& parameter,
                                      const DifferenceBound& bound = {}) {
  const auto f_of_new_version = [&] {
    parameter.value();
    return f();
  };
  expect_gradient(f_of_new_version, parameter.value(), parameter.gradient(), parameter.name(),
                  bound);
  parameter.value();  // refreshes copies of the values, which are restored
}

/// Checks the gradients of a layer's input and parameters for f = <random weights, output>, and
/// that each parameter is reported ready once.
inline void check_layer(Layer& layer, ParameterSet& parameters, std::vector<float> input,
                        bool has_input_gradient = true) {
  parameters.own_gradients();
  std::vector<int> reported(parameters.size());
  parameters.on_gradient_ready([&](std::size_t index) { ++reported[index]; });

  const std::size_t outputs = layer.forward(input, {}).size();
  const std::vector<float> weights = random_values(outputs, 7);
  const auto f = [&] { return dot(layer.forward(input, {}), weights); };
  f();
  const auto returned = layer.backward(weights);
  const std::vector<float> input_gradient(returned.begin(), returned.end());

  EXPECT_EQ(reported, std::vector<int>(parameters.size(), 1));
  if (has_input_gradient) {
    expect_gradient(f, input, input_gradient, "input");
  } else {
    EXPECT_TRUE(input_gradient.empty());
  }
  std::vector<std::vector<float>> once;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    expect_parameter_gradient(f, parameters[i]);
    once.emplace_back(parameters[i].gradient().begin(), parameters[i].gradient().end());
  }

  // Two passes of a step add up and report once. Doubling is exact, but if a product adds to the
  // sum element by element, the sum of two equal contributions is rounded.
  parameters.accumulate(2);
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_EQ(reported, std::vector<int>(parameters.size(), 1));
    f();
    layer.backward(weights);
  }
  EXPECT_EQ(reported, std::vector<int>(parameters.size(), 2));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for (std::size_t j = 0; j < once[i].size(); ++j) {
      ASSERT_NEAR(parameters[i].gradient()[j], 2.0f * once[i][j],
                  1e-5f * (1.0f + std::abs(once[i][j])))
          << parameters[i].name() << "[" << j << "]";
    }
  }
}

}  // namespace kolo::trainer
