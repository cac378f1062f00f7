#pragma once

#include <cstddef>
#include <vector>

namespace kolo {

/// The order in which the gradients of a set are marked, observed over a few iterations. The first
/// one is left out, because programs do more in it than in others. Threads: one at a time.
class MarkOrder {
 public:
  /// Iterations to observe, with the one that is left out: three, the fewest with a median that
  /// one odd iteration does not change.
  static constexpr std::size_t kIterations = 4;

  explicit MarkOrder(std::size_t gradients) : gradients_(gradients) {}

  void begin_iteration();
  /// Each gradient once per iteration.
  void mark(std::size_t gradient);

  /// All gradients by the median of their places in these iterations; the last registered first
  /// among equals. Before: the last iteration is complete, and not the first one.
  std::vector<std::size_t> order() const;

 private:
  std::size_t gradients_;
  std::size_t marked_ = 0;                       // in this iteration
  std::vector<std::vector<std::size_t>> turns_;  // of each gradient, by iteration
};

}  // namespace kolo
