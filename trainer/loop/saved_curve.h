#pragma once

#include <span>
#include <vector>

#include "trainer/report/summary.h"

namespace kolo::trainer {

/// A curve as numbers for a checkpoint, five for each point.
std::vector<double> numbers_of(const std::vector<CurvePoint>& curve);

/// The curve that `numbers_of` made them of. Numbers after the last whole point are left out.
std::vector<CurvePoint> curve_of(std::span<const double> numbers);

}  // namespace kolo::trainer
