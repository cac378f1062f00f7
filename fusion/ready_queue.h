#pragma once

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace kolo {

/// Hands items from any threads to one consumer, in order per producer. The consumer swaps the
/// whole backlog out, so both sides reuse their memory and hold the lock for a push or a swap. An
/// empty queue costs the consumer no lock.
template <typename Item>
class ReadyQueue {
 public:
  /// Returns false, and leaves `item` as it is, once the queue is closed. Threads: any.
  [[nodiscard]] bool push(Item& item) {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    items_.push_back(std::move(item));
    has_items_.store(true, std::memory_order_release);
    return true;
  }

  /// Refuses every later push. Whoever is refused sees what the consumer wrote before. Threads: the
  /// consumer.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }

  /// Replaces the contents of `into` by everything pushed so far. Threads: the consumer.
  void drain(std::vector<Item>& into) {
    into.clear();
    if (empty()) return;
    const std::lock_guard lock(mutex_);
    std::swap(items_, into);
    has_items_.store(false, std::memory_order_relaxed);
  }

  /// May miss a push that nothing orders before the call. Threads: any.
  bool empty() const { return !has_items_.load(std::memory_order_acquire); }

 private:
  std::mutex mutex_;
  std::vector<Item> items_;
  std::atomic<bool> has_items_{false};  // changes under the mutex
  bool closed_ = false;
};

}  // namespace kolo
