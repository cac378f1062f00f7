#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "comm/device/stream.h"
#include "tests/support/device/stream_progress.h"
#include "tests/support/device/stream_task.h"

namespace kolo {

/// A position in a host stream: the number of operations before it.
class HostEvent final : public Event {
 public:
  bool done() const override { return progress_ == nullptr || progress_->reached(position_); }

  void set(std::shared_ptr<const StreamProgress> progress, std::uint64_t position) {
    progress_ = std::move(progress);
    position_ = position;
  }
  /// Before the first record: nothing to wait for.
  void clear() { set(nullptr, 0); }

  const std::shared_ptr<const StreamProgress>& progress() const { return progress_; }
  std::uint64_t position() const { return position_; }

 private:
  std::shared_ptr<const StreamProgress> progress_;  // shared: an event may outlive its stream
  std::uint64_t position_ = 0;
};

/// A queue of operations in host memory that behaves like a stream of an accelerator: operations
/// run later, in order, concurrently with everything that they were not told to wait for. Kernels
/// and collectives of the host are operations on it.
///
/// Errors: an operation that throws fails the stream. Later operations are dropped; `done` of later
///         events, waits for them and later calls throw the text of the exception. Destroying a
///         stream drops pending operations in the same manner, and returns once none runs.
class HostStream : public Stream {
 public:
  /// Runs `task` after everything enqueued before. Allocates only while the queue grows.
  void enqueue(StreamTask task);

  void copy(const BufferView& target, const BufferView& source) override;
  void record(Event& event) override;
  void wait(const Event& event) override;
  void* native() const override { return nullptr; }

 protected:
  bool failed() const { return progress_->failed(); }

  /// Runs `task`, the oldest, once. Returns true if it has completed or failed.
  bool attempt(StreamTask& task) noexcept;
  /// Fails the waits for operations that are dropped with the stream, once none is running.
  void drop_unfinished() noexcept;

 private:
  virtual void push(StreamTask task) = 0;

  std::shared_ptr<StreamProgress> progress_ = std::make_shared<StreamProgress>();
  std::uint64_t enqueued_ = 0;
};

/// The host stream or event behind an object. Errors: UsageError if it belongs to another kind of
/// device.
HostStream& as_host(Stream& stream);
HostEvent& as_host(Event& event);
const HostEvent& as_host(const Event& event);

}  // namespace kolo
