#pragma once

#include <cstddef>
#include <map>
#include <memory>

#include "comm/base/buffer_view.h"
#include "comm/base/mutex.h"
#include "comm/device/device.h"
#include "fusion/device_packer.h"

namespace kolo {

/// Sets tensors in device memory to zero, on a stream of its own. The first use for a tensor
/// allocates; later ones do not.
///
/// Threads: any.
class DeviceClear {
 public:
  /// `device` outlives it.
  explicit DeviceClear(Device& device) : device_(device) {}

  /// Enqueues zeros for tensor number `index` behind `event`, then records `event` behind them.
  /// Before: `view` is the same for each use of a number. Errors: KoloError(kResources).
  void clear(std::size_t index, const BufferView& view, Event& event) KOLO_EXCLUDES(mutex_);

 private:
  Device& device_;
  Mutex mutex_;
  std::unique_ptr<Stream> stream_ KOLO_GUARDED_BY(mutex_);
  std::map<std::size_t, DevicePacker> packers_ KOLO_GUARDED_BY(mutex_);  // by number
};

}  // namespace kolo
