#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainer/checkpoint/state_visitor.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Turns this rank's gradients into the directions of an adaptive optimizer before they are
/// averaged, for parameters whose averages are sparse: averages that arrive once in many steps
/// would fill a second moment with spikes.
///
/// The second moment is that of this rank's own gradients. Averaging over ranks makes squares
/// smaller, by a factor from 1 (all ranks agree) down to 1 / ranks (all is noise). The factor is
/// measured for each tensor in the dense steps before, so that averages of directions are as long
/// as the directions of averages; without dense steps it is 1, which is never too long. Moments and
/// factors differ between ranks, weights do not. A skipped step leaves all moments unchanged.
///
/// Memory:  two more tensors for each parameter that is observed or turned.
/// Threads: one. `parameters` outlives it.
class OwnDirections final : public Stateful {
 public:
  OwnDirections(ParameterSet& parameters, const Optimizer::Adaptation& adaptation);

  /// Between steps.
  void visit_state(StateVisitor& visitor) override;

  /// In a dense step, before the average: this rank's gradient times `scale` enters the moment.
  void observe(std::size_t parameter, float scale);
  /// After it, unless the step is skipped: the gradient is the average now.
  void observe_average(std::size_t parameter, float scale);
  /// In a sparse step: replaces this rank's gradient by its direction.
  void turn(std::size_t parameter);

  /// The step was taken: the moments of the gradients that were observed or turned are in force.
  void commit();

 private:
  struct State {
    Tensor moment, next_moment;
    std::uint64_t steps = 0;      // in `moment`
    bool has_next = false;        // `next_moment` belongs to this step
    double average_energy = 0.0;  // running mean of the averages' sums of squares
    double survival = 1.0;        // the factor, measured when the first gradient is turned
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
