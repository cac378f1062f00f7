#include "comm/device/cuda_error.h"

#include <fmt/format.h>

#include "comm/base/error.h"
#include "comm/base/log.h"

namespace kolo {
namespace {

std::string describe(cudaError_t status, std::string_view call) {
  cudaGetLastError();
  int device = 0;
  const bool has_device = cudaGetDevice(&device) == cudaSuccess;
  if (!has_device) cudaGetLastError();
  return fmt::format("{}: {}: {} ({})", has_device ? fmt::format("cuda:{}", device) : "cuda", call,
                     cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace

void require_cuda(cudaError_t status, std::string_view call) {
  if (status == cudaSuccess) return;
  const bool no_memory = status == cudaErrorMemoryAllocation;
  throw KoloError({.code = no_memory ? ErrorCode::kResources : ErrorCode::kInternal,
                   .what = describe(status, call)});
}

void require_cuda(cudaError_t status, const char* call) {
  if (status != cudaSuccess) require_cuda(status, std::string_view(call));
}

void log_cuda(cudaError_t status, std::string_view call) noexcept {
  if (status == cudaSuccess || status == cudaErrorCudartUnloading) return;
  log::error(describe(status, call));
}

}  // namespace kolo
