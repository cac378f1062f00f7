#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// The part of an optimizer that takes norms of whole tensors. Ranks that share out tensors add up
/// the squares of their elements: after `begin_step` first `prepare` of every parameter, then
/// `squares_of`, then `apply` with the sums over all ranks, in place of `update`.
///
/// Ranks that hold whole tensors add up the squares of the same parts in the same order, so that
/// their `update` has the bits of ranks that share them out.
class TensorNorms {
 public:
  struct Squares {
    double of_weights = 0.0;
    double of_step = 0.0;  ///< Of the direction or gradient that the weights are compared with.

    Squares& operator+=(const Squares& other) {
      of_weights += other.of_weights;
      of_step += other.of_step;
      return *this;
    }
  };
  using Parts = std::function<std::vector<ElementRange>(std::size_t parameter)>;

  virtual ~TensorNorms() = default;

  /// The parts of each parameter, in the order in which `update` adds up their squares. Unless this
  /// is called, all of it is one part.
  void add_up_by(Parts parts) { parts_ = std::move(parts); }

  /// Works out what `squares_of` needs.
  virtual void prepare(std::size_t parameter, float gradient_scale) = 0;
  /// The squares of some elements that this rank owns.
  virtual Squares squares_of(std::size_t parameter, ElementRange range) const = 0;
  /// Updates the elements that this rank owns; `whole` is of the whole tensor.
  virtual void apply(std::size_t parameter, float lr, float gradient_scale,
                     const Squares& whole) = 0;

 protected:
  /// The squares of a tensor of `size` elements that this rank owns, part by part.
  Squares add_up(std::size_t parameter, std::size_t size) const {
    if (!parts_) return squares_of(parameter, {.begin = 0, .count = size});
    Squares whole;
    for (const ElementRange& part : parts_(parameter)) whole += squares_of(parameter, part);
    return whole;
  }

 private:
  Parts parts_;
};

}  // namespace kolo::trainer
