#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/device/device.h"
#include "trainer/checkpoint/state_visitor.h"
#include "trainer/cuda/cuda_optimizer.h"
#include "trainer/cuda/parameters.h"
#include "trainer/optimizer/optimizer.h"

namespace kolo::trainer::cuda {

/// `OwnDirections` on a device, with float32 gradients and no loss scale. Its checkpoints are those
/// of the processor. Values follow the processor's, except that sums are added in another order.
///
/// Memory:  two arrays on the device for each parameter that is passed to `observe` or `turn`.
/// Threads: one. `parameters` outlives this object. All work is enqueued on their stream.
class DeviceDirections final : public Stateful {
 public:
  DeviceDirections(DeviceParameters& parameters, const Optimizer::Adaptation& adaptation);

  /// Visits moments and factors. Call between steps. Blocks.
  void visit_state(StateVisitor& visitor) override;

  /// See OwnDirections.
  void observe(std::size_t parameter);
  void turn(std::size_t parameter);
  /// Measures the average, unless the step is skipped. Call after `optimizer` has taken the step.
  void observe_average(CudaOptimizer& optimizer, std::size_t parameter);
  /// Adopts the moments computed in this step. Call at the end of a step that is not skipped.
  void commit();

 private:
  struct State {
    DeviceMemory moment, next_moment;
    std::uint64_t steps = 0;  // number of steps in `moment`
    bool has_next = false;    // whether `next_moment` was computed in this step
    bool is_measured = false;
  };

  void allocate(std::size_t parameter);
  void enter(std::size_t parameter, const double* survival);
  double* energy(std::size_t parameter) const;
  double* survival(std::size_t parameter) const;

  DeviceParameters& parameters_;
  const Optimizer::Adaptation adaptation_;
  std::vector<State> states_;  // by parameter
  DeviceMemory measures_;      // of each parameter: energy of its averages, survival of squares
};

}  // namespace kolo::trainer::cuda
