#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainer/checkpoint/state_visitor.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Replaces this rank's gradients by the directions of an adaptive optimizer before they are
/// averaged, for parameters with sparse averages: sparse averages of an element arrive once in many
/// steps, and would fill a second moment with spikes.
///
/// The second moment is computed from this rank's own gradients. Averaging over ranks reduces
/// squares by a factor from 1 (all ranks agree) to 1 / ranks (pure noise). The factor is measured
/// per tensor in the preceding dense steps, so that averages of directions are as long as
/// directions of averages; without dense steps it is 1, which never makes them too long. Moments
/// and factors differ between ranks, weights do not. A skipped step leaves all moments unchanged.
///
/// Memory:  two more tensors for each parameter that is observed or turned.
/// Threads: one. `parameters` outlives it.
class OwnDirections final : public Stateful {
 public:
  OwnDirections(ParameterSet& parameters, const Optimizer::Adaptation& adaptation);

  /// Call between steps.
  void visit_state(StateVisitor& visitor) override;

  /// Call in a dense step, before averaging: adds this rank's gradient times `scale` to the moment.
  void observe(std::size_t parameter, float scale);
  /// Call after averaging, unless the step is skipped; the gradient holds the average.
  void observe_average(std::size_t parameter, float scale);
  /// Call in a sparse step: replaces this rank's gradient by its direction.
  void turn(std::size_t parameter);

  /// Call when the step was taken: makes the moments of the observed or turned gradients current.
  void commit();

 private:
  struct State {
    Tensor moment, next_moment;
    std::uint64_t steps = 0;      // whose gradients are in `moment`
    bool has_next = false;        // `next_moment` belongs to this step
    double average_energy = 0.0;  // running mean of the averages' sums of squares
    double survival = 1.0;        // the factor above, measured when the first gradient is turned
    bool is_measured = false;
  };

  static void allocate(State& state, const Shape& shape);
  void enter(State& state, std::size_t parameter, float scale);
  static double survival(const State& state);

  ParameterSet& parameters_;
  const Optimizer::Adaptation adaptation_;
  std::vector<State> states_;  // by parameter
};

}  // namespace kolo::trainer
