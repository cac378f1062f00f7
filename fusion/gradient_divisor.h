#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "comm/base/buffer_view.h"
#include "fusion/gradient.h"

namespace kolo {

/// Divides the gradients of a set by the sum of the contributing ranks' weights instead of the
/// number of ranks.
///
/// The set has one additional gradient in the arena, which holds a weight for each of the others:
/// this rank's weights before the exchange, and the averages of all ranks after it. So all ranks
/// divide alike, and an iteration costs one more small bucket.
///
/// Threads: any for `contribute` and `lacks`, once per gradient and iteration; one for the other
///          functions, between iterations.
class GradientDivisor {
 public:
  /// The specs of a set's gradients, followed by the spec of their weights if its divisor needs
  /// them.
  static std::vector<GradientSpec> with_weights(std::vector<GradientSpec> gradients,
                                                Divisor divisor);

  /// `views` outlive it: the gradients, then their weights.
  GradientDivisor(Divisor divisor, std::span<const BufferView> views, int ranks);

  /// As `GradientSet::set_samples`, with its errors.
  void set_samples(double samples);
  /// Throws UsageError if this rank's weight is not known.
  void check_weight() const;

  /// Multiplies this rank's complete gradient by this rank's weight. With weight zero it becomes
  /// zeros, whatever it holds. Before: `check_weight`.
  void contribute(std::size_t gradient) const;
  /// Marks the gradient as missing on this rank in this iteration.
  void lacks(std::size_t gradient) const { weights()[gradient] = 0; }
  /// After an iteration: converts averages over all ranks to averages over the weights.
  void divide() const;
  /// As above, for one gradient, which must not be divided again.
  void divide(std::size_t gradient) const;

 private:
  double* weights() const { return static_cast<double*>(views_.back().data); }
  double factor(double average_weight) const;

  const Divisor divisor_;
  const std::span<const BufferView> views_;
  const double ranks_;
  double weight_;  // of this rank; negative: unknown
};

}  // namespace kolo
