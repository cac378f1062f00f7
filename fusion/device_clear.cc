#include "fusion/device_clear.h"

#include <span>

namespace kolo {

void DeviceClear::clear(std::size_t index, const BufferView& view, Event& event) {
  const MutexLock lock(mutex_);
  if (!stream_) stream_ = device_.make_stream();
  // A bucket without tensors is one gap, and gaps are packed as zeros.
  const DevicePackerOptions options{.bucket_dtype = view.dtype, .bucket_count = view.count};
  DevicePacker& packer =
      packers_.try_emplace(index, device_, std::span<const Segment>(), options).first->second;
  stream_->wait(event);
  packer.pack(*stream_, 0, view.count, view.data);
  stream_->record(event);
}

}  // namespace kolo
