#include "comm/device/cuda_availability.h"

#include <cuda_runtime_api.h>

#include <fmt/format.h>

namespace kolo {
namespace {

std::string reason_of(cudaError_t status) {
  switch (status) {
    case cudaErrorInsufficientDriver:
      return "the driver is missing or older than this build's CUDA runtime";
    case cudaErrorStubLibrary:
      return "the driver library is the stub that is meant for linking only";
    case cudaErrorNoDevice:
      return "the driver sees no device";
    default:
      return std::string(cudaGetErrorString(status)) + " (" + cudaGetErrorName(status) + ")";
  }
}

}  // namespace

CudaAvailability find_cuda_devices() {
  CudaAvailability found{
      .runtime = fmt::format("{}.{}", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10)};
  const cudaError_t status = cudaGetDeviceCount(&found.device_count);
  if (status != cudaSuccess || found.device_count == 0) {
    cudaGetLastError();
    found.device_count = 0;
    found.reason = reason_of(status == cudaSuccess ? cudaErrorNoDevice : status);
  }
  return found;
}

}  // namespace kolo
