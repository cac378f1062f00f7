#include "tests/support/device/fake_cuda.h"

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "tests/support/fake_nccl.h"

namespace kolo::test {
namespace {

std::unique_ptr<FakeCuda>& current_cuda() {
  static std::unique_ptr<FakeCuda> fake = std::make_unique<FakeCuda>();
  return fake;
}

thread_local int device_of_thread = 0;
thread_local cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;

}  // namespace

cudaError_t wait_for_device() {
  if (std::this_thread::get_id() == fake_cuda().maker) {
    if (fake_cuda().spins) ++fake_cuda().waits;
  } else {
    while (fake_cuda().spins) std::this_thread::yield();
  }
  return refuse_during_capture();
}

namespace {

cudaError_t allocated(void** data, std::size_t bytes, cudaMemoryType kind) {
  *data = fake_cuda().allocate(bytes, kind);
  return *data != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}

}  // namespace

FakeCuda::~FakeCuda() {
  for (const auto& [data, block] : blocks_) std::free(const_cast<char*>(data));
}

void* FakeCuda::allocate(std::size_t bytes, cudaMemoryType kind) {
  const MutexLock lock(mutex_);
  if (blocks_.size() >= room) return nullptr;
  char* const data = static_cast<char*>(std::malloc(bytes));
  cudaPointerAttributes attributes{};
  attributes.type = kind;
  attributes.device = device_of_thread;
  blocks_[data] = {bytes, attributes};
  return data;
}

void FakeCuda::free(void* data) {
  {
    const MutexLock lock(mutex_);
    blocks_.erase(static_cast<char*>(data));
  }
  std::free(data);
}

cudaPointerAttributes FakeCuda::find(const void* data) {
  const MutexLock lock(mutex_);
  const auto* const at = static_cast<const char*>(data);
  auto block = blocks_.upper_bound(at);
  if (block != blocks_.begin() && at < (--block)->first + block->second.bytes) {
    return block->second.attributes;
  }
  return {};
}

std::size_t FakeCuda::in_use() {
  const MutexLock lock(mutex_);
  return blocks_.size();
}

void FakeCuda::load(const void* kernel) {
  const MutexLock lock(mutex_);
  loaded_.insert(kernel);
}

void FakeCuda::launch(const void* kernel) {
  const MutexLock lock(mutex_);
  ++launches;
  if (!loaded_.contains(kernel)) ++lazy_loads;
}

FakeCuda& fake_cuda() { return *current_cuda(); }
void renew_fake_cuda() { current_cuda() = std::make_unique<FakeCuda>(); }

cudaError_t refuse_during_capture() {
  if (!fake_cuda().captures || mode_of_thread == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  fake_cuda().has_lost_capture = true;
  return cudaErrorStreamCaptureUnsupported;
}

}  // namespace kolo::test

using kolo::test::allocated;
using kolo::test::device_of_thread;
using kolo::test::fake_cuda;
using kolo::test::fake_nccl;
using kolo::test::mode_of_thread;
using kolo::test::refuse_during_capture;
using kolo::test::wait_for_device;

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, mode_of_thread);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = fake_cuda().devices;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = device_of_thread;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  device_of_thread = device;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }

#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void**, unsigned int, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
#else
cudaError_t cudaGetDriverEntryPoint(const char*, void**, unsigned long long,
                                    cudaDriverEntryPointQueryResult* found) {
#endif
  *found = cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "Fake GPU");
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  std::snprintf(text, static_cast<std::size_t>(size), "0000:%02X:00.0", device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 132;  // multiprocessors of an H200
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  fake_cuda().asked_device = device_of_thread;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int, int priority) {
  fake_cuda().last_priority = priority;
  *stream = reinterpret_cast<cudaStream_t>(std::malloc(1));
  return refuse_during_capture();
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::free(stream);
  return refuse_during_capture();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  *event = reinterpret_cast<cudaEvent_t>(std::malloc(1));
  return refuse_during_capture();
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  std::free(event);
  return refuse_during_capture();
}

cudaError_t cudaEventQuery(cudaEvent_t) {
  if (const cudaError_t refused = refuse_during_capture()) return refused;
  return fake_cuda().spins ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return refuse_during_capture(); }

cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned int) {
  return refuse_during_capture();
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  std::memmove(target, source, bytes);
  return refuse_during_capture();
}

cudaError_t cudaMemsetAsync(void* target, int value, std::size_t bytes, cudaStream_t) {
  std::memset(target, value, bytes);
  return refuse_during_capture();
}

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  fake_nccl().record("cudaMalloc");
  if (const cudaError_t refused = wait_for_device()) return refused;
  return allocated(data, bytes, cudaMemoryTypeDevice);
}

cudaError_t cudaFree(void* data) {
  fake_nccl().record("cudaFree");
  const cudaError_t status = wait_for_device();
  fake_cuda().free(data);
  return status;
}

cudaError_t cudaMallocAsync(void** data, std::size_t bytes, cudaStream_t) {
  fake_nccl().record("cudaMallocAsync");
  if (const cudaError_t refused = refuse_during_capture()) return refused;
  return allocated(data, bytes, cudaMemoryTypeDevice);
}

cudaError_t cudaFreeAsync(void* data, cudaStream_t) {
  fake_nccl().record("cudaFreeAsync");
  fake_cuda().free(data);
  return refuse_during_capture();
}

cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned int) {
  fake_nccl().record("cudaHostAlloc");
  if (const cudaError_t refused = wait_for_device()) return refused;
  return allocated(data, bytes, cudaMemoryTypeHost);
}

cudaError_t cudaFreeHost(void* data) {
  fake_nccl().record("cudaFreeHost");
  const cudaError_t status = wait_for_device();
  fake_cuda().free(data);
  return status;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  fake_nccl().record("cudaPointerGetAttributes");
  *attributes = fake_cuda().find(data);
  return refuse_during_capture();
}

// Kernels: the compiler turns a launch into these calls.

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void* kernel) {
  fake_cuda().load(kernel);
  return wait_for_device();
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int,
                                                                   std::size_t, unsigned int) {
  *blocks = 1;
  return refuse_during_capture();
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* entry) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(entry));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, std::size_t, cudaStream_t) {
  fake_cuda().launch(kernel);
  return refuse_during_capture();
}

}  // extern "C"
