#pragma once

#include "comm/base/buffer_view.h"

namespace kolo {

/// A point in a stream that the processor can ask about and other streams can wait for.
/// Threads: as its device's streams.
class Event {
 public:
  virtual ~Event() = default;
  /// Whether everything before the last `record` is complete; true if there was none. Never blocks.
  /// Errors: KoloError(kInternal) with the device's text if the device has failed.
  virtual bool done() const = 0;
};

/// Work of a device that runs in the order in which it was enqueued. Every call returns at once;
/// memory that enqueued work touches stays as it is until that work is complete.
///
/// Threads: calls of one stream come from one thread at a time. An event that one thread has
///          recorded may be waited for by another, if that comes after the record.
/// Errors:  KoloError(kInternal) with the device's text; UsageError for broken contracts.
class Stream {
 public:
  virtual ~Stream() = default;

  /// Copies between memory of equal size. UsageError on kHost memory: a copy from pageable memory
  /// is no stream operation on any device.
  virtual void copy(const BufferView& target, const BufferView& source) = 0;

  /// Everything enqueued so far comes before `event`.
  virtual void record(Event& event) = 0;

  /// Everything enqueued from now on comes after the last record of `event`.
  virtual void wait(const Event& event) = 0;

  /// What the device's own library calls this stream (cudaStream_t); null for a host stream.
  virtual void* native() const = 0;
};

/// What every body of `Stream::copy` refuses. Errors: UsageError.
void check_copy(const BufferView& target, const BufferView& source);

}  // namespace kolo
