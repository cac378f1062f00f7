#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "comm/base/unique_handle.h"
#include "comm/device/cuda_error.h"
#include "comm/device/stream.h"

namespace kolo {

struct CudaStreamTraits {
  using Value = cudaStream_t;
  static Value invalid() noexcept { return nullptr; }
  static void close(Value stream) noexcept {
    log_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  }
};
using CudaStreamHandle = UniqueHandle<CudaStreamTraits>;

struct CudaEventTraits {
  using Value = cudaEvent_t;
  static Value invalid() noexcept { return nullptr; }
  static void close(Value event) noexcept { log_cuda(cudaEventDestroy(event), "cudaEventDestroy"); }
};
using CudaEventHandle = UniqueHandle<CudaEventTraits>;

/// Whose kernels begin first when multiprocessors become free.
enum class StreamPriority : std::uint8_t { kNormal, kHighest };

/// Creates a stream of the current device that does not synchronise with the legacy default stream.
/// Errors: those of `require_cuda`.
inline CudaStreamHandle make_cuda_stream(StreamPriority priority = StreamPriority::kNormal) {
  int least = 0, greatest = 0;
  if (priority == StreamPriority::kHighest) {
    require_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                 "cudaDeviceGetStreamPriorityRange");
  }
  cudaStream_t stream = nullptr;
  require_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest),
               "cudaStreamCreateWithPriority");
  return CudaStreamHandle(stream);
}

/// Creates an event of the current device without time stamps, because these slow down each record.
/// Errors: those of `require_cuda`.
inline CudaEventHandle make_cuda_event() {
  cudaEvent_t event = nullptr;
  require_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
               "cudaEventCreateWithFlags");
  return CudaEventHandle(event);
}

/// A CUDA event of one GPU.
class CudaEvent final : public Event {
 public:
  explicit CudaEvent(int device);
  ~CudaEvent() override;

  bool done() const override;

  /// Records the event on a stream of this GPU. Null means the GPU's legacy default stream.
  void record_on(cudaStream_t stream);
  void hold_back(cudaStream_t stream) const;

 private:
  const int device_;
  CudaEventHandle event_;
};

/// A stream of one GPU.
class CudaStream final : public Stream {
 public:
  /// The destructor does not block; work in progress continues.
  explicit CudaStream(int device, StreamPriority priority = StreamPriority::kNormal);

  int device() const { return device_; }

  void copy(const BufferView& target, const BufferView& source) override;
  void record(Event& event) override;
  void wait(const Event& event) override;
  void* native() const override { return stream_->get(); }
  /// The stream, which does not end before its owners, such as memory from its pool.
  const std::shared_ptr<const CudaStreamHandle>& share() const { return stream_; }

 private:
  const int device_;
  std::shared_ptr<const CudaStreamHandle> stream_;
};

/// Casts a stream or event to its CUDA class. Errors: UsageError if it is of another kind of
/// device.
CudaStream& as_cuda(Stream& stream);
CudaEvent& as_cuda(Event& event);
const CudaEvent& as_cuda(const Event& event);

}  // namespace kolo
