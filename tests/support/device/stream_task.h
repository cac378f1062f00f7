#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace kolo {

/// One operation of a host stream: a callable `bool()` that returns true when it is complete. An
/// operation that cannot complete yet (an event is not reached, a peer has not arrived) returns
/// false without a side effect and is called again later. It never blocks.
///
/// The callable lies inside the task, so enqueueing does not allocate. Move-only.
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

  /// Errors: those of the callable. Before: the task has not been moved from.
  bool operator()() { return operations_->call(storage_); }

 private:
  struct Operations {
    bool (*call)(void*);
    void (*move)(void* from, void* to) noexcept;  // ends the life of `from`
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

}  // namespace kolo
