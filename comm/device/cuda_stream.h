#pragma once

#include "comm/device/cuda_handles.h"
#include "comm/device/stream.h"

namespace kolo {

/// A point in streams of one GPU.
class CudaEvent final : public Event {
 public:
  explicit CudaEvent(int device);
  ~CudaEvent() override;

  bool done() const override;

  /// Works with any stream of this GPU; null is its legacy default stream.
  void record_on(cudaStream_t stream);
  void hold_back(cudaStream_t stream) const;

 private:
  const int device_;
  CudaEventHandle event_;
};

/// A stream of one GPU.
class CudaStream final : public Stream {
 public:
  explicit CudaStream(int device);
  /// Incomplete work runs to its end.
  ~CudaStream() override;

  int device() const { return device_; }

  void copy(const BufferView& target, const BufferView& source) override;
  void record(Event& event) override;
  void wait(const Event& event) override;
  void* native() const override { return stream_.get(); }

 private:
  const int device_;
  CudaStreamHandle stream_;
};

/// The CUDA object behind a stream or event. Errors: UsageError if it belongs to another kind of
/// device.
CudaStream& as_cuda(Stream& stream);
CudaEvent& as_cuda(Event& event);
const CudaEvent& as_cuda(const Event& event);

}  // namespace kolo
