#pragma once

#include <cstddef>
#include <cstring>

#include "tests/support/cuda_emulator/device.h"

/// The functions of CUDA's runtime that launchers use. They act on this thread's emulated device.

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorMemoryAllocation = 2,
  cudaErrorCudartUnloading = 4,
  cudaErrorInvalidConfiguration = 9,
};

using cudaStream_t = struct CUstream_st*;

enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16 };

inline cudaError_t cudaGetLastError() {
  return kolo::emulator::Device::current().take_refusal() ? cudaErrorInvalidConfiguration
                                                          : cudaSuccess;
}

inline const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorInvalidConfiguration ? "cudaErrorInvalidConfiguration" : "cudaError";
}

inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorInvalidConfiguration ? "invalid configuration argument" : "an error";
}

inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 1;
  return cudaSuccess;
}

struct cudaFuncAttributes {};

template <typename Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, Kernel) {
  return cudaSuccess;
}

template <typename Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel, int, std::size_t) {
  *blocks = static_cast<int>(kolo::emulator::Device::current().options().resident_blocks);
  return cudaSuccess;
}

inline cudaError_t cudaMemsetAsync(void* at, int value, std::size_t bytes, cudaStream_t) {
  std::memset(at, value, bytes);
  return cudaSuccess;
}
