#pragma once

#include <chrono>
#include <memory>

#include "comm/base/native_stream.h"
#include "comm/device/device.h"

namespace kolo::trainer::cuda {

/// Measures with the device's clock the time of a stream between two points.
///
/// Threads: one. `stream` belongs to `device`, a CUDA device; both outlive it.
/// Errors:  those of CUDA as KoloError(kInternal).
class StreamStopwatch {
 public:
  StreamStopwatch(const kolo::Device& device, NativeStream stream);
  ~StreamStopwatch();
  StreamStopwatch(const StreamStopwatch&) = delete;
  StreamStopwatch& operator=(const StreamStopwatch&) = delete;

  /// The first point: after the work enqueued so far. Never blocks.
  void start();
  /// The second one. Never blocks.
  void stop();
  /// Before: the stream has passed the second point.
  std::chrono::nanoseconds elapsed() const;

 private:
  struct Events;
  std::unique_ptr<Events> events_;
};

}  // namespace kolo::trainer::cuda
