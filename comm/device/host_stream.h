#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "comm/device/stream.h"
#include "comm/device/stream_progress.h"
#include "comm/device/stream_task.h"

namespace kolo {

/// A place in a host stream: how many of its operations come before.
class HostEvent final : public Event {
 public:
  bool done() const override { return progress_ == nullptr || progress_->reached(position_); }

  void set(std::shared_ptr<const StreamProgress> progress, std::uint64_t position) {
    progress_ = std::move(progress);
    position_ = position;
  }
  /// Nothing comes before.
  void clear() { set(nullptr, 0); }

  const std::shared_ptr<const StreamProgress>& progress() const { return progress_; }
  std::uint64_t position() const { return position_; }

 private:
  std::shared_ptr<const StreamProgress> progress_;  // shared: an event may outlive its stream
  std::uint64_t position_ = 0;
};

/// A queue of operations in host memory that behaves like a stream of an accelerator: what is
/// enqueued runs later, in order, beside everything that it was not told to wait for. Kernels and
/// collectives of the host are operations that others enqueue.
///
/// Errors: an operation that throws fails the stream: later ones are dropped, and the exception's
///         text comes out of `done` of the events behind it, of waits for them and of later calls.
///         Destroying a stream drops what has not begun, in the same way, and returns when nothing
///         of it runs any more.
class HostStream : public Stream {
 public:
  /// Runs `task` after everything enqueued before. Takes nothing from the heap once the queue has
  /// held as many tasks as it has to.
  void enqueue(StreamTask task);

  void copy(const BufferView& target, const BufferView& source) override;
  void record(Event& event) override;
  void wait(const Event& event) override;
  void* native() const override { return nullptr; }

 protected:
  bool failed() const { return progress_->failed(); }

  /// Runs `task`, the oldest, once; returns whether it is over, by completion or failure.
  bool attempt(StreamTask& task) noexcept;
  /// Fails what waits for operations that are dropped with the stream, once none is running.
  void drop_unfinished() noexcept;

 private:
  virtual void push(StreamTask task) = 0;

  std::shared_ptr<StreamProgress> progress_ = std::make_shared<StreamProgress>();
  std::uint64_t enqueued_ = 0;
};

/// The host stream or event that an object is. Errors: UsageError if it is of another kind of
/// device.
HostStream& as_host(Stream& stream);
HostEvent& as_host(Event& event);
const HostEvent& as_host(const Event& event);

}  // namespace kolo
