#pragma once

#include "comm/base/buffer_view.h"
#include "comm/base/check.h"

namespace kolo {

/// A point in a stream, set by `Stream::record`. The processor can poll it, and other streams can
/// wait for it. Threads: see Stream.
class Event {
 public:
  virtual ~Event() = default;
  /// Whether all work before the last `record` is complete; true if there was no record. Does not
  /// block. Errors: KoloError(kInternal) with the device's text if the device has failed.
  virtual bool done() const = 0;
};

/// A queue of device work, which runs in the order in which it is enqueued. No call blocks. Memory
/// that enqueued work uses must stay valid until that work is complete.
///
/// Threads: calls on one stream must come from one thread at a time. Another thread may use an
///          event after the call of `record` has returned.
/// Errors:  KoloError(kInternal) with the device's text; UsageError for invalid arguments.
class Stream {
 public:
  virtual ~Stream() = default;

  /// Enqueues a copy of `source` to `target`, which have equal sizes. UsageError for kHost memory:
  /// a device cannot copy pageable memory asynchronously.
  virtual void copy(const BufferView& target, const BufferView& source) = 0;

  /// Records `event` after all work enqueued so far.
  virtual void record(Event& event) = 0;

  /// Makes work enqueued from now on wait for the last record of `event`.
  virtual void wait(const Event& event) = 0;

  /// The stream's handle in the device library (cudaStream_t), or null for a host stream.
  virtual void* native() const = 0;
};

/// Checks the arguments of `Stream::copy`, for all implementations. Errors: UsageError.
inline void check_copy(const BufferView& target, const BufferView& source) {
  check(target.memory != MemoryKind::kHost && source.memory != MemoryKind::kHost,
        "a stream copies between device and pinned memory, not from or to ordinary host memory");
  check(target.bytes() == source.bytes(), "a copy needs a target as large as its source");
}

}  // namespace kolo
