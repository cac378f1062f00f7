#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "comm/base/buffer_view.h"
#include "fusion/gradient.h"

namespace kolo {

/// Divides the gradients of a set by the sum of the contributing ranks' weights.
///
/// The set has one additional gradient in the arena, which holds a weight for each other gradient:
/// this rank's weights before the exchange, and the averages of all ranks' weights after it. All
/// ranks therefore divide by the same numbers, and an iteration exchanges one more small bucket.
///
/// Threads: any for `contribute` and `lacks`, once per gradient and iteration; one for the other
/// functions, between iterations.
class GradientDivisor {
 public:
  /// Returns the specs of a set's gradients, followed by the spec of their weights if the divisor
  /// needs weights.
  static std::vector<GradientSpec> with_weights(std::vector<GradientSpec> gradients,
                                                Divisor divisor);

  /// `views` are the gradients, then their weights. They must outlive this object.
  GradientDivisor(Divisor divisor, std::span<const BufferView> views, int ranks);

  /// As `GradientSet::set_samples`, with its errors.
  void set_samples(double samples);
  /// Throws UsageError if `set_samples` is still needed.
  void check_weight() const;

  /// Multiplies this rank's complete gradient by this rank's weight. With weight zero the gradient
  /// becomes zero, whatever its values. Before: `check_weight`.
  void contribute(std::size_t gradient) const;
  /// Marks the gradient as missing on this rank in this iteration.
  void lacks(std::size_t gradient) const { weights()[gradient] = 0; }
  /// Converts averages over all ranks to averages over the weights, after an iteration.
  void divide() const;
  /// As above, for one gradient, which must not be divided again.
  void divide(std::size_t gradient) const;

 private:
  double* weights() const { return static_cast<double*>(views_.back().data); }
  double factor(double average_weight) const;

  const Divisor divisor_;
  const std::span<const BufferView> views_;
  const double ranks_;
  double weight_;  // of this rank; negative if unknown
};

}  // namespace kolo
