#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "comm/base/error.h"
#include "comm/device/stream.h"

namespace kolo {

/// One operation of a host stream: a callable `bool()` that returns true when it is complete. If it
/// cannot complete yet, because it waits for an event or a peer, it returns false without side
/// effects and is called again later. It never blocks.
///
/// The callable is stored inside the task, so enqueueing allocates no memory. Move-only.
class StreamTask {
 public:
  /// Large enough for a reduction of `kMostReduceSources` sources.
  static constexpr std::size_t kCapacity = 640;

  template <typename Callable>
  requires(!std::is_same_v<std::decay_t<Callable>, StreamTask>)
      StreamTask(Callable&& callable)  // NOLINT(google-explicit-constructor): tasks are lambdas.
      : operations_(&kOperations<std::decay_t<Callable>>) {
    using Held = std::decay_t<Callable>;
    static_assert(sizeof(Held) <= kCapacity, "the task captures too much");
    static_assert(alignof(Held) <= alignof(std::max_align_t));
    static_assert(std::is_nothrow_move_constructible_v<Held>);
    static_assert(std::is_invocable_r_v<bool, Held&>);
    ::new (static_cast<void*>(storage_)) Held(std::forward<Callable>(callable));
  }

  StreamTask(StreamTask&& other) noexcept { take(other); }
  StreamTask& operator=(StreamTask&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  StreamTask(const StreamTask&) = delete;
  StreamTask& operator=(const StreamTask&) = delete;
  ~StreamTask() { reset(); }

  /// Errors: the errors of the callable. Before: the task has not been moved from.
  bool operator()() { return operations_->call(storage_); }

 private:
  struct Operations {
    bool (*call)(void*);
    void (*move)(void* from, void* to) noexcept;  // also destroys `from`
    void (*destroy)(void*) noexcept;
  };

  template <typename Held>
  static constexpr Operations kOperations{
      .call = [](void* held) { return static_cast<bool>((*static_cast<Held*>(held))()); },
      .move =
          [](void* from, void* to) noexcept {
            ::new (to) Held(std::move(*static_cast<Held*>(from)));
            std::destroy_at(static_cast<Held*>(from));
          },
      .destroy = [](void* held) noexcept { std::destroy_at(static_cast<Held*>(held)); },
  };

  void take(StreamTask& other) noexcept {
    operations_ = std::exchange(other.operations_, nullptr);
    if (operations_ != nullptr) operations_->move(other.storage_, storage_);
  }
  void reset() noexcept {
    if (operations_ != nullptr) std::exchange(operations_, nullptr)->destroy(storage_);
  }

  const Operations* operations_ = nullptr;
  alignas(std::max_align_t) std::byte storage_[kCapacity];
};

/// A FIFO queue. Its memory grows to the largest number of queued tasks and is reused.
class TaskQueue {
 public:
  bool empty() const { return count_ == 0; }
  StreamTask& front() { return *slots_[first_]; }

  void push(StreamTask task) {
    if (count_ == slots_.size()) grow();
    slots_[(first_ + count_) % slots_.size()].emplace(std::move(task));
    ++count_;
  }

  void pop() {
    slots_[first_].reset();
    first_ = (first_ + 1) % slots_.size();
    --count_;
  }

 private:
  void grow() {
    std::vector<std::optional<StreamTask>> larger(slots_.empty() ? 16 : 2 * slots_.size());
    for (std::size_t i = 0; i < count_; ++i) {
      larger[i] = std::move(slots_[(first_ + i) % slots_.size()]);
    }
    slots_ = std::move(larger);
    first_ = 0;
  }

  std::vector<std::optional<StreamTask>> slots_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

/// The progress of a host stream. Its events and the waits for them share it, and may outlive
/// the stream.
///
/// Threads: the thread that runs the stream writes; any thread reads. Once `reached` returns true,
/// all work before the corresponding `complete_one` is visible. Nothing else orders memory.
class StreamProgress {
 public:
  void complete_one() { completed_.fetch_add(1, std::memory_order_release); }

  /// Marks the stream as failed: it runs no further operation. Called at most once.
  void fail(Error error) {
    failure_ = std::move(error);
    failed_.store(true, std::memory_order_release);
  }
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// Errors: the KoloError that was passed to `fail`, if any.
  void throw_if_failed() const {
    if (failed()) throw KoloError(*failure_);
  }

  /// Returns whether the first `position` operations of the stream are complete. Errors: KoloError
  /// if they cannot complete.
  bool reached(std::uint64_t position) const {
    if (completed_.load(std::memory_order_acquire) >= position) return true;
    if (!failed()) return false;
    // they completed before the failure
    if (completed_.load(std::memory_order_acquire) >= position) return true;
    throw KoloError(*failure_);
  }

 private:
  std::atomic<std::uint64_t> completed_{0};
  std::atomic<bool> failed_{false};
  std::optional<Error> failure_;
};

/// A position in a host stream, given by the number of operations before it.
class HostEvent final : public Event {
 public:
  bool done() const override { return progress_ == nullptr || progress_->reached(position_); }

  void set(std::shared_ptr<const StreamProgress> progress, std::uint64_t position) {
    progress_ = std::move(progress);
    position_ = position;
  }
  /// Returns to the initial state, in which there is nothing to wait for.
  void clear() { set(nullptr, 0); }

  const std::shared_ptr<const StreamProgress>& progress() const { return progress_; }
  std::uint64_t position() const { return position_; }

 private:
  std::shared_ptr<const StreamProgress> progress_;  // shared: an event may outlive its stream
  std::uint64_t position_ = 0;
};

/// A queue of operations in host memory that behaves like a stream of an accelerator. Operations
/// run later and in order, concurrently with everything that they do not explicitly wait for. Host
/// kernels and host collectives are such operations.
///
/// Errors: an operation that throws fails the stream. Later operations are dropped. Later calls,
/// waits for later events and their `done` throw the text of the exception. Destroying a stream
/// drops pending operations in the same manner, and blocks until none runs.
class HostStream : public Stream {
 public:
  /// Appends `task` to the queue. Allocates memory only when the queue grows.
  void enqueue(StreamTask task);

  void copy(const BufferView& target, const BufferView& source) override;
  void record(Event& event) override;
  void wait(const Event& event) override;
  void* native() const override { return nullptr; }

 protected:
  bool failed() const { return progress_->failed(); }

  /// Runs the oldest task once. Returns true if it has completed or failed.
  bool attempt(StreamTask& task) noexcept;
  /// Fails the waits for operations that are dropped with the stream. Called when none is running.
  void drop_unfinished() noexcept;

 private:
  virtual void push(StreamTask task) = 0;

  std::shared_ptr<StreamProgress> progress_ = std::make_shared<StreamProgress>();
  std::uint64_t enqueued_ = 0;
};

/// Returns the host stream or event behind an object. Errors: UsageError if it is no host object.
HostStream& as_host(Stream& stream);
HostEvent& as_host(Event& event);
const HostEvent& as_host(const Event& event);

}  // namespace kolo
