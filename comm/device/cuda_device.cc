#include "comm/device/cuda_device.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/device/cuda_device_guard.h"
#include "comm/device/cuda_stream.h"

namespace kolo {
namespace {

std::string describe_gpu(int index) {
  cudaDeviceProp properties{};
  require_cuda(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  char bus_id[32] = {};
  require_cuda(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, index), "cudaDeviceGetPCIBusId");
  std::string lower(bus_id);  // The spelling of the kernel and of hwloc.
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return fmt::format("cuda:{} ({}, {})", index, properties.name, lower);
}

DeviceMemory::Free free_with(int index, cudaError_t (*free)(void*), const char* call) {
  return [index, free, call](void* data) { close_on(index, [=] { log_cuda(free(data), call); }); };
}

/// An event of a capture belongs to its graph: no other stream can wait for it, and it tells
/// nothing.
void check_no_capture(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t answer = cudaStreamIsCapturing(stream, &status);
  if (answer == cudaErrorStreamCaptureImplicit) {
    (void)cudaGetLastError();  // It is no error of the next CUDA call.
    status = cudaStreamCaptureStatusActive;
  } else {
    require_cuda(answer, "cudaStreamIsCapturing");
  }
  check(status == cudaStreamCaptureStatusNone,
        "the stream is being captured into a CUDA graph, which Kolo cannot be part of; call it "
        "before or after the graph is launched");
}

}  // namespace

CudaDevice::CudaDevice(int index) : index_(index), description_(describe_gpu(index)) {}

std::unique_ptr<Stream> CudaDevice::make_stream() {
  auto stream = std::make_unique<CudaStream>(index_);
  ++streams_;
  return stream;
}

std::unique_ptr<Event> CudaDevice::make_event() {
  auto event = std::make_unique<CudaEvent>(index_);
  ++events_;
  return event;
}

DeviceMemory CudaDevice::allocate(std::size_t bytes, MemoryKind kind) {
  check(kind != MemoryKind::kHost, "a device allocates only device and pinned memory");
  const CudaDeviceGuard guard(index_);
  const std::size_t taken = std::max<std::size_t>(bytes, 1);
  const bool pinned = kind == MemoryKind::kPinned;
  void* data = nullptr;
  const cudaError_t status =
      pinned ? cudaHostAlloc(&data, taken, cudaHostAllocPortable) : cudaMalloc(&data, taken);
  if (status != cudaSuccess) {
    require_cuda(status,
                 fmt::format("{} of {} bytes of {} memory", pinned ? "cudaHostAlloc" : "cudaMalloc",
                             bytes, to_string(kind)));
  }
  ++allocations_;
  return DeviceMemory(data, bytes, kind,
                      pinned ? free_with(index_, cudaFreeHost, "cudaFreeHost")
                             : free_with(index_, cudaFree, "cudaFree"));
}

void CudaDevice::record(NativeStream stream, Event& event) {
  const auto native = static_cast<cudaStream_t>(stream.handle);
  check_no_capture(native);
  as_cuda(event).record_on(native);
}

void CudaDevice::wait(NativeStream stream, const Event& event) {
  const auto native = static_cast<cudaStream_t>(stream.handle);
  check_no_capture(native);
  as_cuda(event).hold_back(native);
}

AllocationCounts CudaDevice::allocation_counts() const {
  return {.allocations = allocations_, .streams = streams_, .events = events_};
}

}  // namespace kolo
