#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "trainer/checkpoint/state_visitor.h"
#include "trainer/cuda/parameters.h"
#include "trainer/optimizer/optimizer.h"

namespace kolo::trainer::cuda {

/// The settings of an update of all parameters.
struct UpdateOptions {
  float lr = 0.0f;
  float gradient_scale = 1.0f;  ///< Factor of gradients, applied before clipping: 1 / loss_scale.
  double clip_norm = 0.0;       ///< Limit of the norm of scaled gradients; 0: no limit.
};

/// The result of an update, known when the device has completed it.
struct UpdateReport {
  double gradient_norm = 0.0;  ///< Norm of scaled gradients before clipping.
  bool is_skipped = false;     ///< Whether a gradient was infinite or NaN, so that nothing changed.
  std::uint64_t steps = 0;     ///< Number of updates so far that were not skipped.
};

/// SGD or AdamW on the device, with float32 values and moments, and float32 or bfloat16 gradients.
/// The same pass over memory writes the 16-bit copies of the values.
///
/// The device decides from the norm of the gradients whether to skip an update. Infinite and NaN
/// gradients survive the sum over ranks, so all ranks decide alike without waiting for the device.
/// A norm whose squares overflow float32 (gradients beyond 1e19) counts as infinite.
///
/// Bits:    equal in every run, and element by element equal to sgd_update and adamw_update on a
///          processor with fused multiply-add.
/// Threads: one. `parameters` outlives this object.
class CudaOptimizer : public Stateful {
 public:
  /// `name` is "sgd" or "adamw". Before: all gradients are bound, with one dtype; if they are bound
  /// again, a new optimizer is needed. Errors: KoloError(kConfig) naming the choices.
  CudaOptimizer(DeviceParameters& parameters, std::string_view name,
                const OptimizerOptions& options);
  ~CudaOptimizer() override;
  CudaOptimizer(const CudaOptimizer&) = delete;
  CudaOptimizer& operator=(const CudaOptimizer&) = delete;

  /// Says whether gradient `index` is a direction from the next step on; see Optimizer::follow.
  void follow(std::size_t index, bool is_direction);

  /// For ranks that each update a part of the elements: `step` calls `gather` with an array of a
  /// float64 sum per rank in device memory, which has this rank's. After the call, the stream waits
  /// for work that fills in the sums of the other ranks.
  void gather_squares_by(std::size_t rank, std::size_t ranks,
                         std::function<void(const BufferView& squares)> gather);

  /// Bytes of the moments.
  std::size_t bytes() const;

  /// Enqueues the norm, the decision, the update and the copy of the report on the stream of the
  /// parameters.
  void step(const UpdateOptions& options);

  /// Enqueues energy = beta2 · energy + (1 - beta2) · sum of squares of gradient `index`, unless
  /// the last `step` is skipped. `energy` is in device memory. Before: this rank updates all
  /// elements.
  void measure(std::size_t index, float beta2, double* energy);

  /// The report of the last `step`. Blocks until the device has completed that step. Enqueue the
  /// next `forward_backward` before this call, so that the device is not idle.
  UpdateReport report();

  /// The state has the pieces of the optimizer of this name on the processor. Blocks.
  void visit_state(StateVisitor& visitor) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kolo::trainer::cuda
