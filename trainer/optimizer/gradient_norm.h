#pragma once

#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// Euclidean norm of all gradients taken as one vector.
double gradient_norm(const ParameterSet& parameters);

/// Factor that brings gradients of norm `norm` down to at most `limit`; 1 without a limit (0).
float clip_factor(double norm, double limit);

}  // namespace kolo::trainer
