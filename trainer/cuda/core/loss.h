#pragma once

#include <cstddef>
#include <memory>

#include "comm/device/device.h"
#include "trainer/cuda/compute/context.h"
#include "trainer/cuda/core/batch_staging.h"
#include "trainer/cuda/kernels/cross_entropy.h"

namespace kolo::trainer::cuda {

/// Softmax cross-entropy on the device; its sums stay there until they are requested.
///
/// Threads: one. `stream`, `context` and `batch` outlive it.
class Loss {
 public:
  struct Shape {
    std::size_t rows;
    std::size_t classes;
  };

  Loss(kolo::Device& device, Stream& stream, Context& context, const BatchStaging& batch,
       const Shape& shape);

  /// Enqueues loss and gradient of `logits`, float32 [rows, classes].
  void evaluate_with_gradient(const float* logits) { enqueue(logits, gradient_.data()); }
  void evaluate(const float* logits) { enqueue(logits, nullptr); }

  /// [rows, classes] of the context's dtype.
  const void* gradient() const { return gradient_.data(); }

  /// The sums of all batches since the last call. Blocks.
  LossTotals take();

 private:
  void enqueue(const float* logits, void* gradient);
  void clear_totals();

  Stream& stream_;
  Context& context_;
  const BatchStaging& batch_;
  Shape shape_;
  DeviceMemory gradient_, row_results_, totals_, pinned_totals_;
  std::unique_ptr<Event> copied_;
};

}  // namespace kolo::trainer::cuda
