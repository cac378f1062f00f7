#include "trainer/optimizer/gradient_norm.h"

#include <cmath>

#include "trainer/kernels/vector.h"

namespace kolo::trainer {

double sum_of_squares(const Parameter& parameter) {
  double squares = 0.0;
  parameter.visit_gradient(
      [&](std::size_t, std::span<const float> part) { squares += sum_of_squares(part); });
  return squares;
}

double gradient_norm(const ParameterSet& parameters) {
  double squares = 0.0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    squares += sum_of_squares(parameters[i]);
  }
  return std::sqrt(squares);
}

float clip_factor(double norm, double limit) {
  if (limit <= 0.0 || norm <= limit) return 1.0f;
  return static_cast<float>(limit / norm);
}

}  // namespace kolo::trainer
