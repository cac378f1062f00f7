#include "trainer/cuda/compute/dnn.h"

#include <fmt/format.h>

#include "comm/base/error.h"
#include "comm/base/log.h"

namespace kolo::trainer::cuda {

void check_dnn(cudnnStatus_t status, std::string_view call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw KoloError({.code = ErrorCode::kInternal,
                   .what = fmt::format("{}: {}", call, cudnnGetErrorString(status))});
}

void log_dnn(cudnnStatus_t status, std::string_view call) noexcept {
  if (status != CUDNN_STATUS_SUCCESS) log::error(call);
}

cudnnHandle_t Dnn::handle() {
  if (!handle_) {
    cudnnHandle_t handle = nullptr;
    check_dnn(cudnnCreate(&handle), "cudnnCreate");
    handle_ = UniqueHandle<DnnTraits>(handle);
    check_dnn(cudnnSetStream(handle, static_cast<cudaStream_t>(stream_.native())),
              "cudnnSetStream");
  }
  return handle_.get();
}

cudnnMathType_t Dnn::math_of(DType dtype) const {
  if (is_16bit_float(dtype)) return CUDNN_TENSOR_OP_MATH;
  return float32_math_ == Float32Math::kTensorFloat32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
}

void Dnn::reserve(std::size_t bytes) {
  if (bytes > workspace_.bytes()) workspace_ = device_.allocate(bytes, MemoryKind::kDevice);
}

}  // namespace kolo::trainer::cuda
