#pragma once

#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// Sum of the squares of a parameter's gradient.
double sum_of_squares(const Parameter& parameter);

/// Euclidean norm of all gradients taken as one vector.
double gradient_norm(const ParameterSet& parameters);

/// Factor that scales gradients of norm `norm` down to at most `limit`; 1 if there is no limit (0).
float clip_factor(double norm, double limit);

}  // namespace kolo::trainer
