#pragma once

#include <cstdint>

#include "trainer/compute/factor.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// A weight as products read it: a `Factor` that follows the changes of a parameter.
///
/// Threads: one.
class WeightFactor {
 public:
  /// Both outlive it.
  WeightFactor(Device& device, const Parameter& weight)
      : weight_(weight), factor_(device, weight.size()) {}

  /// Before the first product of a forward pass.
  void refresh() {
    if (version_ == weight_.version()) return;
    factor_.assign(weight_.value());
    version_ = weight_.version();
  }

  /// The weight, [outputs, inputs], as of the last `refresh`.
  Operand operand() const { return factor_.operand(weight_.shape()[0], weight_.shape()[1]); }

 private:
  const Parameter& weight_;
  Factor factor_;
  std::uint64_t version_ = 0;  // in factor_
};

}  // namespace kolo::trainer
