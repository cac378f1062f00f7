#pragma once

#include <memory>

#include "comm/device/device.h"
#include "trainer/cuda/compute/matmul.h"
#include "trainer/cuda/cuda_model.h"

namespace kolo::trainer::cuda {

/// Products on one stream through cuBLASLt, with their own workspace.
///
/// An algorithm is chosen once per shape, at plan time, and kept. Only algorithms that add partial
/// sums in a fixed order are considered.
///
/// Threads: one. `device` and `stream` outlive it.
/// Errors:  KoloError with cuBLAS's text.
/// Source:  NVIDIA, "cuBLAS library", chapter "Using the cuBLASLt API".
class Blas {
 public:
  class Plan;

  Blas(kolo::Device& device, Stream& stream, Float32Math float32_math);
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  /// The plan for a shape, or null if the library has no algorithm for it: not every epilogue
  /// exists for every dtype and width.
  const Plan* find(const MatmulShape& shape);
  /// The same for shapes that must work. Errors: KoloError(kInternal) naming the shape.
  const Plan& get(const MatmulShape& shape);

  /// Enqueues one product (or batch).
  void run(const Plan& plan, const MatmulArguments& arguments);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kolo::trainer::cuda
