#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "comm/base/buffer_view.h"
#include "fusion/gradient.h"

namespace kolo {

/// Divides the gradients of a set by the weights of the ranks that have them, instead of by the
/// number of ranks.
///
/// The set has one gradient more than its user registered, in the arena: a weight for each of the
/// others, of this rank before the exchange and the average of all ranks after it. All ranks thus
/// divide alike, and an iteration costs one small bucket more.
///
/// Threads: `contribute` and `lacks` any, each gradient's once per iteration; the rest one,
///          between iterations.
class GradientDivisor {
 public:
  /// The specs of a set's gradients with that of their weights, if its divisor needs them, behind.
  static std::vector<GradientSpec> with_weights(std::vector<GradientSpec> gradients,
                                                Divisor divisor);

  /// `views` outlive it: those of the gradients, and last that of their weights.
  GradientDivisor(Divisor divisor, std::span<const BufferView> views, int ranks);

  /// As `GradientSet::set_samples`, with its errors.
  void set_samples(double samples);
  /// Throws UsageError if this rank's weight is not known.
  void check_weight() const;

  /// This rank's gradient is complete: multiplies it by this rank's weight. One of weight zero
  /// becomes zeros, whatever it holds. Before: `check_weight`.
  void contribute(std::size_t gradient) const;
  /// This rank has no such gradient in this iteration.
  void lacks(std::size_t gradient) const { weights()[gradient] = 0; }
  /// Makes averages over all ranks those over the weights of an iteration that is over.
  void divide() const;
  /// The same for one gradient, which is then divided for good.
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
