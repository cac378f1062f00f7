#include "comm/device/cuda_device.h"

#include <cuda.h>  // Types only; not every machine has the driver library.
#include <cuda_runtime_api.h>

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/device/cuda_stream.h"
#include "comm/device/kernels/kernels.h"
#include "comm/device/kernels/top_k.h"

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

namespace {

/// Whether this process has a context on `device`. Asks the driver, because the CUDA runtime has no
/// call for this.
bool is_in_use(int device) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  constexpr unsigned kSince = 7000;  // The CUDA version that introduced this signature.
  const cudaError_t status = cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &entry,
                                                              kSince, cudaEnableDefault, &found);
#else
  const cudaError_t status =
      cudaGetDriverEntryPoint("cuDevicePrimaryCtxGetState", &entry, cudaEnableDefault, &found);
#endif
  if (status != cudaSuccess || found != cudaDriverEntryPointSuccess) return false;
  unsigned flags = 0;
  int active = 0;
  const auto get_state = reinterpret_cast<decltype(&cuDevicePrimaryCtxGetState)>(entry);
  return get_state(device, &flags, &active) == CUDA_SUCCESS && active != 0;
}

}  // namespace

CudaDeviceGuard::CudaDeviceGuard(int device) {
  require_cuda(cudaGetDevice(&before_), "cudaGetDevice");
  if (device != before_) {
    require_cuda(cudaSetDevice(device), "cudaSetDevice");
    changed_ = true;
  }
  require_cuda(cudaThreadExchangeStreamCaptureMode(&mode_), "cudaThreadExchangeStreamCaptureMode");
}

CudaDeviceGuard::~CudaDeviceGuard() {
  log_cuda(cudaThreadExchangeStreamCaptureMode(&mode_), "cudaThreadExchangeStreamCaptureMode");
  if (changed_ && is_in_use(before_)) log_cuda(cudaSetDevice(before_), "cudaSetDevice");
}

void CudaKernels::copy_batched(Stream& stream, const BatchedCopy& copy) {
  const CudaStream& on = as_cuda(stream);
  const CudaDeviceGuard guard(on.device());
  launch_batched_copy(copy, on.native());
}

void CudaKernels::reduce(Stream& stream, DType dtype, ReduceOp op, void* target,
                         std::span<const void* const> sources, std::size_t count, double scale) {
  check_reduce(sources.size());
  const CudaStream& on = as_cuda(stream);
  const CudaDeviceGuard guard(on.device());
  launch_reduce(dtype, op, target, sources, count, scale, on.native());
}

void CudaKernels::sum_rows(Stream& stream, const RowGroups& groups, const void* rows,
                           std::size_t width, DType dtype, double scale, void* sums) {
  const CudaStream& on = as_cuda(stream);
  const CudaDeviceGuard guard(on.device());
  launch_row_sums(groups, rows, width, dtype, scale, sums, on.native());
}

void CudaKernels::spread_rows(Stream& stream, std::span<const std::int64_t> indices,
                              const void* rows, std::size_t row_bytes, void* table,
                              std::size_t height) {
  const CudaStream& on = as_cuda(stream);
  const CudaDeviceGuard guard(on.device());
  launch_row_spread(indices, rows, row_bytes, table, height, on.native());
}

void CudaKernels::top_k(Stream& stream, const TopK& task, std::span<std::byte> workspace) {
  const CudaStream& on = as_cuda(stream);
  const CudaDeviceGuard guard(on.device());
  launch_top_k(task, workspace, on.native());
}

void CudaKernels::subtract_pairs(Stream& stream, std::span<const std::int64_t> indices,
                                 const float* values, float* residual, float* velocity) {
  const CudaStream& on = as_cuda(stream);
  const CudaDeviceGuard guard(on.device());
  launch_subtract_pairs(indices, values, residual, velocity, on.native());
}

void CudaKernels::quantise(Stream& stream, const Quantisation& task) {
  const CudaStream& on = as_cuda(stream);
  const CudaDeviceGuard guard(on.device());
  launch_quantise(task, on.native());
}

void CudaKernels::find_non_finite(Stream& stream, DType dtype, const void* data, std::size_t count,
                                  std::uint32_t* non_finite) {
  const CudaStream& on = as_cuda(stream);
  const CudaDeviceGuard guard(on.device());
  launch_find_non_finite(dtype, data, count, non_finite, on.native());
}

namespace {

std::string describe_gpu(int index) {
  cudaDeviceProp properties{};
  require_cuda(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  char bus_id[32] = {};
  require_cuda(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, index), "cudaDeviceGetPCIBusId");
  std::string lower(bus_id);  // as the Linux kernel and hwloc spell it
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return fmt::format("cuda:{} ({}, {})", index, properties.name, lower);
}

DeviceMemory::Free free_with(int index, std::shared_ptr<FreeingThread> thread,
                             cudaError_t (*free)(void*), const char* call) {
  return [index, thread = std::move(thread), free, call](void* data) {
    thread->run([=] { close_on(index, [=] { log_cuda(free(data), call); }); });
  };
}

/// Throws UsageError if `stream` is being captured into a CUDA graph: an event recorded during
/// capture cannot be queried, and other streams cannot wait for it.
void check_no_capture(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t answer = cudaStreamIsCapturing(stream, &status);
  if (answer == cudaErrorStreamCaptureImplicit) {
    (void)cudaGetLastError();  // clears the error, so that no later call reports it
    status = cudaStreamCaptureStatusActive;
  } else {
    require_cuda(answer, "cudaStreamIsCapturing");
  }
  check(status == cudaStreamCaptureStatusNone,
        "the stream is being captured into a CUDA graph, which Kolo cannot be part of; call it "
        "before or after the graph is launched");
}

}  // namespace

CudaDevice::CudaDevice(int index) : index_(index), description_(describe_gpu(index)) {
  const CudaDeviceGuard guard(index_);
  load_kernels();
}

std::unique_ptr<Stream> CudaDevice::make_stream() {
  auto stream = std::make_unique<CudaStream>(index_, StreamPriority::kHighest);
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
  const cudaError_t status = allocate_patiently(*freeing_, [&] {
    return pinned ? cudaHostAlloc(&data, taken, cudaHostAllocPortable) : cudaMalloc(&data, taken);
  });
  if (status != cudaSuccess) {
    require_cuda(status,
                 fmt::format("{} of {} bytes of {} memory", pinned ? "cudaHostAlloc" : "cudaMalloc",
                             bytes, to_string(kind)));
  }
  ++allocations_;
  return DeviceMemory(data, bytes, kind,
                      pinned ? free_with(index_, freeing_, cudaFreeHost, "cudaFreeHost")
                             : free_with(index_, freeing_, cudaFree, "cudaFree"),
                      stuck());
}

DeviceMemory CudaDevice::allocate_on(Stream& stream, std::size_t bytes) {
  const CudaDeviceGuard guard(index_);
  const std::size_t taken = std::max<std::size_t>(bytes, 1);
  const auto pool = as_cuda(stream).share();
  void* data = nullptr;
  const cudaError_t status = cudaMallocAsync(&data, taken, pool->get());
  require_cuda(status, status == cudaSuccess
                           ? std::string()
                           : fmt::format("cudaMallocAsync of {} bytes of device memory", bytes));
  ++allocations_;
  const auto free = [index = index_, pool](void* memory) {
    close_on(index, [&] { log_cuda(cudaFreeAsync(memory, pool->get()), "cudaFreeAsync"); });
  };
  return DeviceMemory(data, bytes, MemoryKind::kDevice, free, stuck());
}

std::string CudaDevice::foreign_memory(const void* data) {
  const auto place = std::hash<const void*>()(data) / 256 % own_addresses_.size();
  std::atomic<const void*>& known = own_addresses_[place];
  if (known.load(std::memory_order_relaxed) == data) return {};
  const CudaDeviceGuard guard(index_);
  cudaPointerAttributes found{};
  require_cuda(cudaPointerGetAttributes(&found, data), "cudaPointerGetAttributes");
  switch (found.type) {
    case cudaMemoryTypeDevice:
      if (found.device != index_) return fmt::format("memory of cuda:{}", found.device);
      break;
    case cudaMemoryTypeManaged:
      break;
    case cudaMemoryTypeHost:
      return "pinned host memory";
    default:
      return "memory of no device, such as ordinary host memory";
  }
  known.store(data, std::memory_order_relaxed);
  return {};
}

void CudaDevice::record(NativeStream stream, Event& event) {
  const CudaDeviceGuard guard(index_);
  const auto native = static_cast<cudaStream_t>(stream.handle);
  check_no_capture(native);
  as_cuda(event).record_on(native);
}

void CudaDevice::wait(NativeStream stream, const Event& event) {
  const CudaDeviceGuard guard(index_);
  const auto native = static_cast<cudaStream_t>(stream.handle);
  check_no_capture(native);
  as_cuda(event).hold_back(native);
}

AllocationCounts CudaDevice::allocation_counts() const {
  return {.allocations = allocations_, .streams = streams_, .events = events_};
}

void CudaDevice::note_stuck() {
  Device::note_stuck();
  const auto leave = [](int status, void*) {
    std::fflush(nullptr);
    ::_exit(status);
  };
  // Runs before everything that was registered earlier, and so before the destructors of CUDA.
  if (::on_exit(leave, nullptr) != 0) log::error("the process may not end: on_exit has failed");
}

}  // namespace kolo
