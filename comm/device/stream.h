#pragma once

#include "comm/base/buffer_view.h"
#include "comm/base/check.h"

namespace kolo {

/// A point in a stream. The processor can poll it and other streams can wait for it. Threads: as
/// for the streams of its device.
class Event {
 public:
  virtual ~Event() = default;
  /// True if all work before the last `record` is complete, or if there was no record. Never
  /// blocks. Errors: KoloError(kInternal) with the device's text if the device has failed.
  virtual bool done() const = 0;
};

/// Work of a device that runs in the order in which it was enqueued. No call blocks. Memory that
/// enqueued work uses must stay valid until that work is complete.
///
/// Threads: calls on one stream come from one thread at a time. Another thread may wait for an
///          event if the record happened before.
/// Errors:  KoloError(kInternal) with the device's text; UsageError for broken contracts.
class Stream {
 public:
  virtual ~Stream() = default;

  /// Copies between memory of equal size. UsageError for kHost memory, because no device copies
  /// pageable memory as a stream operation.
  virtual void copy(const BufferView& target, const BufferView& source) = 0;

  /// Records `event` after everything enqueued so far.
  virtual void record(Event& event) = 0;

  /// Makes everything enqueued from now on wait for the last record of `event`.
  virtual void wait(const Event& event) = 0;

  /// The handle of the device library for this stream (cudaStream_t); null for a host stream.
  virtual void* native() const = 0;
};

/// Argument checks shared by all implementations of `Stream::copy`. Errors: UsageError.
inline void check_copy(const BufferView& target, const BufferView& source) {
  check(target.memory != MemoryKind::kHost && source.memory != MemoryKind::kHost,
        "a stream copies between device and pinned memory, not from or to ordinary host memory");
  check(target.bytes() == source.bytes(), "a copy needs a target as large as its source");
}

}  // namespace kolo
