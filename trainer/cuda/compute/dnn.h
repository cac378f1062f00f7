#pragma once

#include <cudnn.h>

#include <cstddef>
#include <string_view>

#include "comm/base/unique_handle.h"
#include "comm/device/device.h"
#include "trainer/cuda/cuda_model.h"

namespace kolo::trainer::cuda {

/// Throws KoloError with cuDNN's text unless the call succeeded.
void check_dnn(cudnnStatus_t status, std::string_view call);
void log_dnn(cudnnStatus_t status, std::string_view call) noexcept;

struct DnnTraits {
  using Value = cudnnHandle_t;
  static Value invalid() noexcept { return nullptr; }
  static void close(Value dnn) noexcept { log_dnn(cudnnDestroy(dnn), "cudnnDestroy"); }
};

/// cuDNN on one stream, with a workspace that its operations share. Opened at the first use, so
/// that models without images do not load it.
///
/// Threads: one. `device` and `stream` outlive it.
class Dnn {
 public:
  Dnn(kolo::Device& device, Stream& stream, Float32Math float32_math)
      : device_(device), stream_(stream), float32_math_(float32_math) {}

  /// Errors: KoloError with cuDNN's text.
  cudnnHandle_t handle();

  /// The arithmetic that convolutions of `dtype` may use.
  cudnnMathType_t math_of(DType dtype) const;

  /// At plan time: gives the workspace at least `bytes`.
  void reserve(std::size_t bytes);
  void* workspace() const { return workspace_.data(); }
  std::size_t workspace_bytes() const { return workspace_.bytes(); }

 private:
  kolo::Device& device_;
  Stream& stream_;
  Float32Math float32_math_;
  DeviceMemory workspace_;
  UniqueHandle<DnnTraits> handle_;
};

}  // namespace kolo::trainer::cuda
