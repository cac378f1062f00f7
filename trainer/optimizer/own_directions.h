#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainer/checkpoint/state_visitor.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Replaces this rank's gradients by directions of an adaptive optimizer before they are averaged,
/// for parameters whose averages are sparse. An element of a sparse average is nonzero only once in
/// many steps, so the second moment of averages would be useless.
///
/// Instead, the second moment is computed from this rank's gradients. Averaging over ranks reduces
/// squares by a factor between 1 (all gradients are equal) and 1 / ranks (gradients are independent
/// noise). The factor is measured per tensor in the preceding dense steps, so that averages of
/// directions are as long as directions of averages. Without dense steps it is 1, with which
/// directions are never too long. Moments and factors differ between ranks; weights do not. A
/// skipped step leaves all moments unchanged.
///
/// Memory:  two more tensors per parameter that is passed to `observe` or `turn`.
/// Threads: one. `parameters` outlives this object.
class OwnDirections final : public Stateful {
 public:
  OwnDirections(ParameterSet& parameters, const Optimizer::Adaptation& adaptation);

  /// Visits moments and factors. Call between steps.
  void visit_state(StateVisitor& visitor) override;

  /// Adds this rank's gradient times `scale` to the moment. Call in a dense step, before averaging.
  void observe(std::size_t parameter, float scale);
  /// Measures the average, which the gradient's memory now holds, times `scale`. Call in a dense
  /// step after averaging, unless the step is skipped.
  void observe_average(std::size_t parameter, float scale);
  /// Adds this rank's gradient to the moment, and replaces the gradient by its direction. Call in a
  /// sparse step, before averaging.
  void turn(std::size_t parameter);

  /// Adopts the moments computed in this step. Call at the end of a step that is not skipped.
  void commit();

 private:
  struct State {
    Tensor moment, next_moment;
    std::uint64_t steps = 0;      // number of steps in `moment`
    bool has_next = false;        // whether `next_moment` was computed in this step
    double average_energy = 0.0;  // running mean of the sum of squares of the averages
    double survival = 1.0;        // factor by which averaging reduces squares, measured once
    bool is_measured = false;
  };

  static void allocate(State& state, const Shape& shape);
  void enter(State& state, std::size_t parameter, float scale);
  static double survival(const State& state);

  ParameterSet& parameters_;
  const Optimizer::Adaptation adaptation_;
  std::vector<State> states_;  // states by parameter
};

}  // namespace kolo::trainer
