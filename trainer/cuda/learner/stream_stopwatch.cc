#include "trainer/cuda/learner/stream_stopwatch.h"

#include <cuda_runtime_api.h>

#include "comm/base/check.h"
#include "comm/device/cuda_device.h"
#include "comm/device/cuda_device_guard.h"
#include "comm/device/cuda_error.h"
#include "comm/device/cuda_handles.h"

namespace kolo::trainer::cuda {
namespace {

// Unlike the events of make_cuda_event, these take time stamps.
CudaEventHandle make_timed_event() {
  cudaEvent_t event = nullptr;
  require_cuda(cudaEventCreate(&event), "cudaEventCreate");
  return CudaEventHandle(event);
}

int index_of(const kolo::Device& device) {
  const auto* cuda_device = dynamic_cast<const CudaDevice*>(&device);
  check(cuda_device != nullptr, "a stopwatch of CUDA streams needs a CUDA device");
  return cuda_device->index();
}

}  // namespace

struct StreamStopwatch::Events {
  int device;
  cudaStream_t stream;
  CudaEventHandle begin;
  CudaEventHandle end;
};

StreamStopwatch::StreamStopwatch(const kolo::Device& device, NativeStream stream) {
  const int index = index_of(device);
  const CudaDeviceGuard guard(index);
  events_ = std::make_unique<Events>(Events{.device = index,
                                            .stream = static_cast<cudaStream_t>(stream.handle),
                                            .begin = make_timed_event(),
                                            .end = make_timed_event()});
}

StreamStopwatch::~StreamStopwatch() {
  close_on(events_->device, [this] { events_.reset(); });
}

void StreamStopwatch::start() {
  const CudaDeviceGuard guard(events_->device);
  require_cuda(cudaEventRecord(events_->begin.get(), events_->stream), "cudaEventRecord");
}

void StreamStopwatch::stop() {
  const CudaDeviceGuard guard(events_->device);
  require_cuda(cudaEventRecord(events_->end.get(), events_->stream), "cudaEventRecord");
}

std::chrono::nanoseconds StreamStopwatch::elapsed() const {
  const CudaDeviceGuard guard(events_->device);
  float milliseconds = 0.0f;
  require_cuda(cudaEventElapsedTime(&milliseconds, events_->begin.get(), events_->end.get()),
               "cudaEventElapsedTime");
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<float, std::milli>(milliseconds));
}

}  // namespace kolo::trainer::cuda
