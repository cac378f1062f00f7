#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "trainer/cuda/cuda_model.h"
#include "trainer/optimizer/optimizer.h"

namespace kolo::trainer::cuda {

/// One update of all parameters.
struct UpdateOptions {
  float lr = 0.0f;
  float gradient_scale = 1.0f;  ///< Factor of gradients, applied first: 1 / loss_scale.
  double clip_norm = 0.0;       ///< Limit of the norm after that; 0: none.
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
/// The device decides about skipping an update, by the norm of the gradients. Infinite and NaN
/// gradients survive a sum over ranks, so all ranks decide alike and no host waits. A norm whose
/// squares overflow float32 (gradients beyond 1e19) counts as infinite.
///
/// Bits:    equal in every run; element for element those of sgd_update and adamw_update with fused
///          multiply-adds.
/// Threads: one. `model` outlives it.
class CudaOptimizer {
 public:
  /// `name` is that of a kind on the device, "sgd" or "adamw". Before: the gradients of `model` are
  /// bound; after binding again, make a new optimizer. Errors: KoloError(kConfig) naming the
  /// choices.
  CudaOptimizer(CudaModel& model, std::string_view name, const OptimizerOptions& options);
  ~CudaOptimizer();
  CudaOptimizer(const CudaOptimizer&) = delete;
  CudaOptimizer& operator=(const CudaOptimizer&) = delete;

  /// Enqueues norm, decision and update on the model's stream, and the copy of the report.
  void step(const UpdateOptions& options);

  /// The report of the last `step`. Waits until the device has completed that step, but not for
  /// later work; enqueue the next forward_backward first to lose no time.
  UpdateReport report();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kolo::trainer::cuda
