#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "trainer/cuda/cuda_model.h"
#include "trainer/optimizer/optimizer.h"

namespace kolo::trainer::cuda {

/// Settings of one update of all parameters.
struct UpdateOptions {
  float lr = 0.0f;
  float gradient_scale = 1.0f;  ///< Factor of gradients, applied first: 1 / loss_scale.
  double clip_norm = 0.0;       ///< Limit of the norm after scaling; 0: none.
};

/// The outcome of an update, known once the device has completed it.
struct UpdateReport {
  double gradient_norm = 0.0;  ///< After gradient_scale, before clipping.
  bool is_skipped = false;     ///< A gradient was infinite or NaN; nothing changed.
  std::uint64_t steps = 0;     ///< Updates that were not skipped, this one included.
};

/// SGD or AdamW on the device: fp32 values and moments, with the 16-bit copies written in the same
/// pass.
///
/// The device decides whether to skip an update, by the norm of the gradients. Infinite and NaN
/// gradients survive a sum over ranks, so all ranks decide alike without waiting for the device. A
/// norm whose squares overflow float32 (gradients beyond 1e19) counts as infinite.
///
/// Bits:    equal in every run; element for element those of sgd_update and adamw_update with fused
///          multiply-adds.
/// Threads: one. `model` outlives it.
class CudaOptimizer {
 public:
  /// `name` is "sgd" or "adamw". Before: the gradients of `model` are bound; if they are bound
  /// again, make a new optimizer. Errors: KoloError(kConfig) naming the choices.
  CudaOptimizer(CudaModel& model, std::string_view name, const OptimizerOptions& options);
  ~CudaOptimizer();
  CudaOptimizer(const CudaOptimizer&) = delete;
  CudaOptimizer& operator=(const CudaOptimizer&) = delete;

  /// Enqueues norm, decision, update and the copy of the report on the model's stream.
  void step(const UpdateOptions& options);

  /// The report of the last `step`. Waits until the device has completed that step, but not for
  /// later work; enqueue the next forward_backward first to lose no time.
  UpdateReport report();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kolo::trainer::cuda
