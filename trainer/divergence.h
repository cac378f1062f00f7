#pragma once

#include <string>

#include "comm/base/error.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// Training has lost its numbers: a loss, weight or gradient is infinite or NaN, and no lower loss
/// scale can help. All ranks find that in the same step.
class DivergedError final : public KoloError {
 public:
  /// Exit status of a program that ends so.
  static constexpr int kExitStatus = 79;

  using KoloError::KoloError;
};

/// "the weights of 'NAME'", the first in the order of the forward pass; if all weights are finite,
/// "the gradient of 'NAME'", the first in the order of the backward pass. Empty if all are finite.
/// Gradients without memory are left out.
std::string first_not_finite(const ParameterSet& parameters);

/// Throws DivergedError: `what` is not finite, and which tensor is the first.
[[noreturn]] void throw_diverged(const std::string& what, const ParameterSet& parameters);

}  // namespace kolo::trainer
