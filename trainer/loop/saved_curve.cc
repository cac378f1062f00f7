#include "trainer/loop/saved_curve.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>

namespace kolo::trainer {
namespace {

constexpr std::size_t kNumbersPerPoint = 5;
constexpr double kNotEvaluated = std::numeric_limits<double>::quiet_NaN();

std::optional<double> unless_missing(double value) {
  return std::isnan(value) ? std::nullopt : std::optional(value);
}

}  // namespace

std::vector<double> numbers_of(const std::vector<CurvePoint>& curve) {
  std::vector<double> numbers;
  for (const CurvePoint& point : curve) {
    numbers.insert(numbers.end(), {static_cast<double>(point.step), point.seconds, point.train_loss,
                                   point.eval_loss.value_or(kNotEvaluated),
                                   point.eval_metric.value_or(kNotEvaluated)});
  }
  return numbers;
}

std::vector<CurvePoint> curve_of(std::span<const double> numbers) {
  std::vector<CurvePoint> curve;
  for (; numbers.size() >= kNumbersPerPoint; numbers = numbers.subspan(kNumbersPerPoint)) {
    curve.push_back({.step = static_cast<std::size_t>(numbers[0]),
                     .seconds = numbers[1],
                     .train_loss = numbers[2],
                     .eval_loss = unless_missing(numbers[3]),
                     .eval_metric = unless_missing(numbers[4])});
  }
  return curve;
}

}  // namespace kolo::trainer
