#include "comm/device/cuda_stream.h"

#include "comm/base/check.h"
#include "comm/device/cuda_device.h"

namespace kolo {
namespace {

template <typename Cuda, typename Any>
Cuda& cast(Any& any) {
  auto* const cuda = dynamic_cast<Cuda*>(&any);
  check(cuda != nullptr, "this stream or event belongs to another kind of device");
  return *cuda;
}

}  // namespace

CudaEvent::CudaEvent(int device) : device_(device) {
  const CudaDeviceGuard guard(device_);
  event_ = make_cuda_event();
}

CudaEvent::~CudaEvent() {
  close_on(device_, [this] { event_.reset(); });
}

bool CudaEvent::done() const {
  const CudaDeviceGuard guard(device_);
  const cudaError_t status = cudaEventQuery(event_.get());
  if (status != cudaErrorNotReady) {
    require_cuda(status, "cudaEventQuery");
    return true;
  }
  cudaGetLastError();  // Clears "not ready", so that no later call reports it as an error.
  return false;
}

void CudaEvent::record_on(cudaStream_t stream) {
  const CudaDeviceGuard guard(device_);
  require_cuda(cudaEventRecord(event_.get(), stream), "cudaEventRecord");
}

void CudaEvent::hold_back(cudaStream_t stream) const {
  const CudaDeviceGuard guard(device_);
  require_cuda(cudaStreamWaitEvent(stream, event_.get(), cudaEventWaitDefault),
               "cudaStreamWaitEvent");
}

CudaStream::CudaStream(int device, StreamPriority priority) : device_(device) {
  const CudaDeviceGuard guard(device_);
  stream_ = {
      new CudaStreamHandle(make_cuda_stream(priority)),
      [device](const CudaStreamHandle* stream) { close_on(device, [stream] { delete stream; }); }};
}

void CudaStream::copy(const BufferView& target, const BufferView& source) {
  check_copy(target, source);
  if (source.count == 0) return;
  const CudaDeviceGuard guard(device_);
  require_cuda(
      cudaMemcpyAsync(target.data, source.data, source.bytes(), cudaMemcpyDefault, stream_->get()),
      "cudaMemcpyAsync");
}

void CudaStream::record(Event& event) { as_cuda(event).record_on(stream_->get()); }
void CudaStream::wait(const Event& event) { as_cuda(event).hold_back(stream_->get()); }

CudaStream& as_cuda(Stream& stream) { return cast<CudaStream>(stream); }
CudaEvent& as_cuda(Event& event) { return cast<CudaEvent>(event); }
const CudaEvent& as_cuda(const Event& event) { return cast<const CudaEvent>(event); }

}  // namespace kolo
